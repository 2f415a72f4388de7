-- Plain: a token is made for one attempt and written once, so a duplicate is a fault.
INSERT INTO counterfoil.outcome (token, verdict) VALUES ($1, 'committed')
