SELECT key FROM counterfoil.event_actor_key
