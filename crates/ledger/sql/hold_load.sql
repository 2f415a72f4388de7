SELECT r.tenant_id, r.id, r.account_id, r.amount, r.captured, r.state, r.expires_at, r.note,
       r.recorded_at, r.changed_at
  FROM unnest($1::bigint[], $2::uuid[]) AS u (tenant_id, id)
  JOIN counterfoil.ledger_hold AS r
    ON r.tenant_id = u.tenant_id AND r.id = u.id
