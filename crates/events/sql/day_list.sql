SELECT day FROM counterfoil.event_day
