UPDATE counterfoil.ledger_hold AS r
   SET captured = u.captured, state = u.state, changed_at = u.changed_at
  FROM unnest($1::bigint[], $2::uuid[], $3::numeric[], $4::text[], $5::timestamptz[])
       AS u (tenant_id, id, captured, state, changed_at)
 WHERE r.tenant_id = u.tenant_id AND r.id = u.id
