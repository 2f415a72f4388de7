SELECT tenant_id, id, at, stream, subject, actor, properties::text
  FROM counterfoil.event_spill
 WHERE id >= $1 AND id <= $2
 ORDER BY tenant_id, id
 LIMIT $3
   FOR UPDATE SKIP LOCKED
