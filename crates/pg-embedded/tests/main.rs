//! Stories of clusters, told with real servers. With `scripts/with-servers` they run on Debian's
//! PostgreSQL 15 and once on 18; without it, on whatever the machine has.

mod adoption;
mod desk;
mod fetching;
mod life;
mod refusals;
