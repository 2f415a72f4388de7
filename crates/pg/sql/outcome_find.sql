SELECT verdict FROM counterfoil.outcome WHERE token = $1
