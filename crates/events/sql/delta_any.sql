SELECT EXISTS (SELECT FROM counterfoil.rollup_delta WHERE slot = $1)
