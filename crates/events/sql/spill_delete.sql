DELETE FROM counterfoil.event_spill AS spill
 USING unnest($1::bigint[], $2::uuid[]) AS taken (tenant_id, id)
 WHERE spill.tenant_id = taken.tenant_id AND spill.id = taken.id
