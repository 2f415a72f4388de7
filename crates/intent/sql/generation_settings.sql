SELECT clock_timestamp() AS now, (extract(epoch FROM r.retention) * 1000)::bigint AS retention_ms
FROM counterfoil.stub_retention AS r
