//! Reads.

use counterfoil_intent::Key;

use crate::answer;
use crate::app::{Answered, App, fault, json};
use crate::engine::Engine;
use crate::param::{self, Query};
use crate::problem::Problem;
use crate::route::{Action, Match};

impl<E: Engine> App<E> {
    pub(crate) async fn read(&self, found: &Match<'_>, _query: &Query<'_>) -> Answered {
        let tenant = found.tenant.expect("every route that reads a tenant's rows is of a tenant");
        let param = found.param.unwrap_or_default();
        match found.spec.action {
            Action::Stub => {
                let key = Key::parse(&param::decode(param, "key")?).map_err(Problem::invalid)?;
                let state = self.engine.stub(tenant, &key).await.map_err(|error| fault("look for a stub", &error))?;
                Ok(json(answer::stub_state(&key, &state)))
            }
            _ => Err(Problem::not_found("thing")),
        }
    }
}
