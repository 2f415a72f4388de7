//! Which request goes where. The table is the one list of routes there is: requests are matched
//! against it, `Allow` is made of it, and a test holds `openapi.json` against it.

use counterfoil_pg::TenantId;
use http::Method;

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Mixed intents: one, an array or NDJSON.
    Intents,
    /// One intent of a known kind, its fields side by side. `merged` is the field of the body that
    /// the last parameter of the path stands for.
    Kind {
        name: &'static str,
        merged: Option<&'static str>,
    },
    /// One event, an array or NDJSON.
    Events,
    Report,
    Stub,
    Accounts,
    Account,
    Entries,
    Holds,
    Transfer,
    Hold,
    Tenants,
    TenantCreate,
    Health,
    Ready,
    Metrics,
    OpenApi,
    Codes,
    Status,
}

impl Action {
    /// Who may ask.
    #[must_use]
    pub fn door(self) -> Door {
        match self {
            Self::Health | Self::Ready | Self::Codes => Door::Public,
            Self::Tenants | Self::TenantCreate | Self::Metrics | Self::Status => Door::Operator,
            Self::OpenApi => Door::AnyKey,
            _ => Door::Tenant,
        }
    }

    /// Whether a person may look at it in a browser.
    pub(crate) fn is_page(self) -> bool {
        matches!(self, Self::Status | Self::OpenApi | Self::Metrics)
    }
}

/// Who may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Public,
    /// Whoever has a key at all.
    AnyKey,
    /// The tenant of the path, and operators.
    Tenant,
    Operator,
}

/// One route.
#[derive(Debug)]
pub struct Spec {
    pub method: Method,
    /// As in OpenAPI: `{name}` stands for one segment. `{tenant}` comes first where there is one.
    pub path: &'static str,
    pub action: Action,
    /// Query parameters it knows; any other is an error.
    pub query: &'static [&'static str],
}

const fn get(path: &'static str, action: Action, query: &'static [&'static str]) -> Spec {
    Spec {
        method: Method::GET,
        path,
        action,
        query,
    }
}

const fn post(path: &'static str, action: Action) -> Spec {
    Spec {
        method: Method::POST,
        path,
        action,
        query: &[],
    }
}

const fn kind(path: &'static str, name: &'static str, merged: Option<&'static str>) -> Spec {
    post(path, Action::Kind { name, merged })
}

/// Tried in order: what is asked most comes first.
pub const ROUTES: &[Spec] = &[
    post("/v1/tenants/{tenant}/intents", Action::Intents),
    post("/v1/tenants/{tenant}/events", Action::Events),
    kind("/v1/tenants/{tenant}/transfers", "ledger.transfer", None),
    kind("/v1/tenants/{tenant}/holds", "ledger.hold", None),
    kind(
        "/v1/tenants/{tenant}/holds/{hold}/capture",
        "ledger.capture",
        Some("hold"),
    ),
    kind(
        "/v1/tenants/{tenant}/holds/{hold}/release",
        "ledger.release",
        Some("hold"),
    ),
    kind(
        "/v1/tenants/{tenant}/transfers/{transfer}/reverse",
        "ledger.reverse",
        Some("transfer"),
    ),
    kind("/v1/tenants/{tenant}/accounts", "ledger.open", None),
    kind(
        "/v1/tenants/{tenant}/accounts/{account}/limit",
        "ledger.limit",
        Some("account"),
    ),
    kind(
        "/v1/tenants/{tenant}/accounts/{account}/close",
        "ledger.close",
        Some("account"),
    ),
    kind("/v1/tenants/{tenant}/assets", "ledger.asset", None),
    get(
        "/v1/tenants/{tenant}/report",
        Action::Report,
        &[
            "stream",
            "subject",
            "grain",
            "week_start",
            "zone",
            "from",
            "to",
            "top",
            "format",
        ],
    ),
    get("/v1/tenants/{tenant}/stubs/{key}", Action::Stub, &[]),
    get(
        "/v1/tenants/{tenant}/accounts/{account}",
        Action::Account,
        &["as_of", "effective_as_of"],
    ),
    get(
        "/v1/tenants/{tenant}/accounts/{account}/entries",
        Action::Entries,
        &["cursor", "limit", "order"],
    ),
    get(
        "/v1/tenants/{tenant}/accounts/{account}/holds",
        Action::Holds,
        &["cursor", "limit"],
    ),
    get(
        "/v1/tenants/{tenant}/accounts",
        Action::Accounts,
        &["cursor", "limit", "prefix"],
    ),
    get("/v1/tenants/{tenant}/transfers/{transfer}", Action::Transfer, &[]),
    get("/v1/tenants/{tenant}/holds/{hold}", Action::Hold, &[]),
    get("/v1/tenants", Action::Tenants, &["cursor", "limit"]),
    post("/v1/tenants", Action::TenantCreate),
    get("/healthz", Action::Health, &[]),
    get("/readyz", Action::Ready, &[]),
    get("/metrics", Action::Metrics, &[]),
    get("/openapi.json", Action::OpenApi, &[]),
    get("/codes", Action::Codes, &[]),
    get("/", Action::Status, &[]),
];

/// A request that found its route.
#[derive(Debug)]
pub(crate) struct Match<'a> {
    /// Its place in [`ROUTES`].
    pub(crate) index: usize,
    pub(crate) spec: &'static Spec,
    /// Present where the path has `{tenant}`.
    pub(crate) tenant: Option<TenantId>,
    /// The other parameter of the path, as it was sent: percent-encoded.
    pub(crate) param: Option<&'a str>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// No route of that path.
    NotFound,
    /// There is one, for these methods.
    Method { allow: String },
}

/// Finds the route. `HEAD` is `GET`: hyper leaves the body out.
pub(crate) fn find<'a>(method: &Method, path: &'a str) -> Result<Match<'a>, Miss> {
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    let mut allow = Vec::new();
    for (index, spec) in ROUTES.iter().enumerate() {
        let Some((tenant, param)) = matches(spec.path, path) else {
            continue;
        };
        if spec.method == asked {
            return Ok(Match {
                index,
                spec,
                tenant,
                param,
            });
        }
        allow.push(spec.method.as_str());
        if spec.method == Method::GET {
            allow.push("HEAD");
        }
    }
    if allow.is_empty() {
        Err(Miss::NotFound)
    } else {
        Err(Miss::Method {
            allow: allow.join(", "),
        })
    }
}

fn matches<'a>(pattern: &str, path: &'a str) -> Option<(Option<TenantId>, Option<&'a str>)> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let (mut tenant, mut param) = (None, None);
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some((tenant, param)),
            (Some("{tenant}"), Some(value)) => tenant = Some(tenant_id(value)?),
            (Some(want), Some(value)) if want.starts_with('{') => {
                if value.is_empty() {
                    return None;
                }
                param = Some(value);
            }
            (Some(want), Some(value)) if want == value => {}
            _ => return None,
        }
    }
}

/// One spelling per tenant: digits without a sign or leading zeros. Anything else is no tenant.
fn tenant_id(text: &str) -> Option<TenantId> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits || text.starts_with('0') {
        return None;
    }
    text.parse().ok().map(TenantId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_finds_itself() {
        for (index, spec) in ROUTES.iter().enumerate() {
            let path: Vec<_> = spec
                .path
                .split('/')
                .map(|segment| match segment {
                    "{tenant}" => "7",
                    segment if segment.starts_with('{') => "x",
                    segment => segment,
                })
                .collect();
            let path = path.join("/");
            assert_eq!(
                find(&spec.method, &path).unwrap().index,
                index,
                "{} {path}",
                spec.method
            );
        }
    }

    #[test]
    fn a_tenant_id_that_is_not_a_number_is_not_found() {
        for id in [
            "",
            "x",
            "-1",
            "+1",
            "007",
            "0",
            "1.0",
            "1e3",
            "99999999999999999999",
            "%31",
        ] {
            let path = format!("/v1/tenants/{id}/intents");
            assert_eq!(find(&Method::POST, &path).unwrap_err(), Miss::NotFound, "{id}");
        }
        let found = find(&Method::POST, "/v1/tenants/9223372036854775807/intents").unwrap();
        assert_eq!(found.tenant, Some(TenantId(i64::MAX)));
    }

    #[test]
    fn a_wrong_method_is_told_the_right_ones() {
        let miss = find(&Method::DELETE, "/v1/tenants/1/accounts").unwrap_err();
        assert_eq!(
            miss,
            Miss::Method {
                allow: "POST, GET, HEAD".to_owned()
            }
        );
        let miss = find(&Method::GET, "/v1/tenants/1/intents").unwrap_err();
        assert_eq!(
            miss,
            Miss::Method {
                allow: "POST".to_owned()
            }
        );
    }

    #[test]
    fn head_is_get() {
        assert_eq!(find(&Method::HEAD, "/healthz").unwrap().spec.action, Action::Health);
    }

    #[test]
    fn empty_segments_and_trailing_slashes_match_nothing() {
        for path in [
            "/v1/tenants/1/stubs/",
            "/healthz/",
            "//",
            "/v1//tenants",
            "/v1/tenants/1/intents/",
            "*",
            "",
        ] {
            assert_eq!(find(&Method::GET, path).unwrap_err(), Miss::NotFound, "{path}");
        }
    }

    #[test]
    fn an_encoded_slash_stays_inside_its_parameter() {
        let found = find(&Method::GET, "/v1/tenants/1/accounts/cash%2Ftill").unwrap();
        assert_eq!(found.param, Some("cash%2Ftill"));
    }
}
