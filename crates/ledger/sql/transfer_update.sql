UPDATE counterfoil.ledger_transfer AS r
   SET reversed_by = u.reversed_by
  FROM unnest($1::bigint[], $2::uuid[], $3::uuid[]) AS u (tenant_id, id, reversed_by)
 WHERE r.tenant_id = u.tenant_id AND r.id = u.id
