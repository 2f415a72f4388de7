//! Who may ask what.

use counterfoil_server::{Door, ROUTES};
use http::Method;

use crate::engine::{Client, OPERATOR_KEY};

/// A path of a route, of a tenant.
fn path_of(pattern: &str, tenant: &str) -> String {
    let segments = pattern.split('/').map(|segment| match segment {
        "{tenant}" => tenant,
        "{hold}" | "{transfer}" => "01890a5d-ac96-774b-bcce-b302099a8057",
        segment if segment.starts_with('{') => "x",
        segment => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn nothing_but_health_readiness_and_the_meaning_of_codes_is_public() {
    let client = Client::new();
    for spec in ROUTES {
        let path = path_of(spec.path, "7");
        let got = client
            .ask(spec.method.clone(), &path)
            .without("authorization")
            .empty()
            .await;
        if ["/healthz", "/readyz", "/codes"].contains(&spec.path) {
            assert_eq!(got.status, 200, "{path}");
            continue;
        }
        assert_eq!(
            (got.status.as_u16(), got.code().as_str()),
            (401, "unauthorized"),
            "{} {path}",
            spec.method
        );
        let challenge = got.header("www-authenticate").to_owned();
        assert!(
            challenge.starts_with("Bearer ") || challenge.starts_with("Basic "),
            "{challenge}"
        );
    }
    assert!(client.taken().is_empty());
}

#[tokio::test]
async fn a_key_that_is_not_known_is_401_and_told_so() {
    let client = Client::new();
    for value in [
        "Bearer nobody",
        "Bearer ",
        "Basic b2Y6b2Ytc2V2ZW4=",
        "of-seven",
        "Digest x",
    ] {
        let got = client
            .get("/v1/tenants/7/accounts")
            .instead("authorization", value)
            .empty()
            .await;
        assert_eq!(got.code(), "unauthorized", "{value}");
    }
    let got = client
        .get("/v1/tenants/7/accounts")
        .instead("authorization", "Bearer nobody")
        .empty()
        .await;
    assert!(got.header("www-authenticate").contains("invalid_token"));
}

/// A proxy might believe the one, and the server the other.
#[tokio::test]
async fn of_two_keys_none_is_believed_and_the_page_of_codes_says_so_of_any_route() {
    let client = Client::new();
    for spec in ROUTES.iter().filter(|spec| spec.action.door() != Door::Public) {
        let path = path_of(spec.path, "7");
        let ask = client.ask(spec.method.clone(), &path);
        let got = ask
            .header("authorization", &format!("Bearer {OPERATOR_KEY}"))
            .empty()
            .await;
        let seen = (got.status.as_u16(), got.code());
        assert_eq!(seen, (400, "header_repeated".to_owned()), "{} {path}", spec.method);
    }
    let page = client.get("/codes").empty().await.text;
    assert!(page.contains("<h3 id=\"header_repeated\">header_repeated</h3>\n<p>400 · any</p>\n"));
}

#[tokio::test]
async fn a_key_of_one_tenant_gets_404_for_another_s_things() {
    let client = Client::new();
    for spec in ROUTES.iter().filter(|spec| spec.action.door() == Door::Tenant) {
        // Whether the other is there makes no difference.
        for tenant in ["8", "9"] {
            let path = path_of(spec.path, tenant);
            let got = client.ask(spec.method.clone(), &path).empty().await;
            assert_eq!((got.status.as_u16(), got.code().as_str()), (404, "not_found"), "{path}");
            insta::allow_duplicates! {
                insta::assert_snapshot!(got.text, @r#"{"status":404,"type":"/codes#not_found","title":"Not found","code":"not_found","detail":"there is no such tenant"}"#);
            }
        }
    }
    assert!(client.taken().is_empty());
}

#[tokio::test]
async fn routes_of_operators_are_403_for_a_tenant() {
    let client = Client::new();
    for spec in ROUTES.iter().filter(|spec| spec.action.door() == Door::Operator) {
        let got = client.ask(spec.method.clone(), spec.path).empty().await;
        assert_eq!(
            (got.status.as_u16(), got.code().as_str()),
            (403, "operators_only"),
            "{}",
            spec.path
        );
    }
}

#[tokio::test]
async fn an_operator_acts_for_every_tenant_there_is() {
    let client = Client::new();
    let bearer = format!("Bearer {OPERATOR_KEY}");
    let ask = |path| client.post(path).instead("authorization", &bearer);
    let got = ask("/v1/tenants/8/assets").send(r#"{"key":"k"}"#).await;
    assert_eq!(got.code(), "busy");
    assert_eq!(client.taken(), ["k"]);
    let got = ask("/v1/tenants/9/assets").send(r#"{"key":"k"}"#).await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (404, "not_found"));
    assert_eq!(client.taken(), ["k"]);
}

#[tokio::test]
async fn a_browser_opens_the_pages_with_the_key_as_its_password() {
    let client = Client::new();
    // any:of-the-operator
    let basic = "Basic YW55Om9mLXRoZS1vcGVyYXRvcg==";
    for page in ["/", "/openapi.json", "/metrics"] {
        let got = client.get(page).instead("authorization", basic).empty().await;
        assert_eq!(got.status, 200, "{page}");
        let got = client.get(page).without("authorization").empty().await;
        let challenge = got.header("www-authenticate");
        assert!(
            challenge.starts_with("Basic ") && challenge.contains(", Bearer "),
            "{page}: {challenge}"
        );
    }
    let got = client.get("/v1/tenants").instead("authorization", basic).empty().await;
    assert_eq!(got.status, 401);
}

#[tokio::test]
async fn a_database_that_cannot_be_asked_who_is_asking_is_503() {
    let client = Client::new();
    let got = client
        .get("/v1/tenants/7/accounts")
        .instead("authorization", "Bearer database-away")
        .empty()
        .await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (503, "unavailable"));
    assert_eq!(got.header("retry-after"), "1");
}

#[tokio::test]
async fn unknown_routes_are_404_and_wrong_methods_405_with_allow() {
    let client = Client::new();
    for path in [
        "/v1",
        "/v1/tenants/x/accounts",
        "/v1/tenants/7/nothing",
        "/r/abc",
        "/healthz/",
    ] {
        let got = client.get(path).empty().await;
        assert_eq!(
            (got.status.as_u16(), got.code().as_str()),
            (404, "route_unknown"),
            "{path}"
        );
    }
    let got = client.ask(Method::DELETE, "/v1/tenants/7/accounts").empty().await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (405, "method_not_allowed"));
    assert_eq!(got.header("allow"), "POST, GET, HEAD");
    let got = client.ask(Method::OPTIONS, "/v1/tenants/7/intents").empty().await;
    assert_eq!(got.header("allow"), "POST");
}

/// The time runs in the test: nobody waits for it.
#[tokio::test(start_paused = true)]
async fn a_database_that_does_not_say_whose_key_it_is_keeps_nobody_beyond_their_time() {
    let client = Client::new();
    let ask = |timeout: Option<&str>| {
        let ask = client.post("/v1/tenants/7/intents");
        let ask = ask.instead("authorization", "Bearer database-silent");
        match timeout {
            Some(timeout) => ask.instead("counterfoil-timeout", timeout),
            None => ask,
        }
    };
    let begun = tokio::time::Instant::now();
    let got = ask(Some("2000")).send("{}").await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (408, "deadline_passed"));
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    for timeout in [None, Some("600000"), Some("nonsense")] {
        let got = ask(timeout).send("{}").await;
        assert_eq!((got.status.as_u16(), got.code().as_str()), (503, "unavailable"));
    }
}

#[tokio::test]
async fn a_request_of_http_1_1_says_once_which_host_it_is_for() {
    let client = Client::new();
    let none = client.get("/healthz").without("host").empty().await;
    let twice = client.get("/healthz").header("host", "other").empty().await;
    for got in [none, twice] {
        assert_eq!((got.status.as_u16(), got.code().as_str()), (400, "host_invalid"));
    }
    assert_eq!(client.get("/healthz").empty().await.status, 200);
}
