//! The HTTP API.
//!
//! **Owns** routes, the reading of requests, the writing of answers and problem documents, the
//! OpenAPI document, `/metrics`, and the pages for people.
//!
//! **Invariants.** What can be known without the database is answered before anything is handed to
//! the lanes. An answer and its replay have the same body, letter by letter. A request within its
//! limits is read whole before anything of it is done. Whatever is sent, the server answers and
//! lives.
//!
//! **Must not** hold SQL, nor know what a kind does.
//!
//! Nothing sits between hyper and [`App::handle`]: a request of one small intent costs a few
//! microseconds here, and a stack of middlewares, boxed bodies and boxed futures would cost more
//! than all of it. The table of routes ([`ROUTES`]) is plain data for the same reason, and so that a
//! test can hold the OpenAPI document against it.

mod answer;
mod app;
mod body;
pub mod codes;
mod codes_page;
mod engine;
mod events;
mod head;
mod items;
mod json;
mod limits;
mod metrics;
mod pages;
mod param;
mod problem;
mod quiet;
mod read;
mod ready;
mod route;
mod serve;
mod shares;
mod tenants;
mod write;

pub use app::App;
pub use engine::{AsOf, Engine, Live, Migrations, Render};
pub use limits::Limits;
pub use pages::OPENAPI;
pub use problem::Problem;
pub use ready::Readiness;
pub use route::{Action, Door, ROUTES, Spec};
pub use serve::serve;
