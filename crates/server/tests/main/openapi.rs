//! The OpenAPI document says what the server does: neither runs away from the other.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_intent::{Kinds, Limits};
use counterfoil_server::{Action, Door, OPENAPI, ROUTES};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::engine::{Client, OPERATOR_KEY, TENANT};
use crate::schema::{resolve, violations};

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// (method, path) of every operation.
fn operations(document: &Value) -> BTreeMap<(String, String), Value> {
    let mut found = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            found.insert((method.to_uppercase(), path.clone()), operation.clone());
        }
    }
    found
}

#[test]
fn every_route_is_in_the_document_and_the_converse() {
    let documented: BTreeSet<_> = operations(&document()).into_keys().collect();
    let routed: BTreeSet<_> = ROUTES
        .iter()
        .map(|spec| (spec.method.to_string(), spec.path.to_owned()))
        .collect();
    assert_eq!(documented, routed);
}

#[test]
fn parameters_and_doors_are_those_of_the_routes() {
    let document = document();
    let operations = operations(&document);
    for spec in ROUTES {
        let operation = &operations[&(spec.method.to_string(), spec.path.to_owned())];
        let parameters: Vec<Value> = operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let named = |place: &str| -> BTreeSet<String> {
            let resolved = parameters.iter().map(|parameter| resolve(&document, parameter));
            let of_place = resolved.filter(|parameter| parameter["in"] == place);
            of_place
                .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let query: BTreeSet<_> = spec.query.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(named("query"), query, "query of {} {}", spec.method, spec.path);
        let in_path = spec
            .path
            .split('/')
            .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(named("path"), in_path.map(str::to_owned).collect(), "{}", spec.path);
        // An event's id is its key.
        let writes = spec.method == "POST" && spec.action != Action::Events;
        assert_eq!(named("header").contains("Idempotency-Key"), writes, "{}", spec.path);
        let public = operation["security"] == serde_json::json!([]);
        assert_eq!(public, spec.action.door() == Door::Public, "{}", spec.path);
        // Whoever has to show a key may have shown two, or one that cannot be checked just now.
        for status in ["400", "401", "500", "503"].iter().filter(|_| !public) {
            let listed = operation["responses"].get(status).is_some();
            assert!(listed, "{status} of {} {}", spec.method, spec.path);
        }
    }
}

#[test]
fn every_example_fits_its_schema() {
    let document = document();
    let mut seen = 0;
    let mut check = |place: &str, content: &Value| {
        for (media_type, media) in content.as_object().unwrap() {
            let many = media["examples"]
                .as_object()
                .into_iter()
                .flat_map(|map| map.values().map(|one| &one["value"]));
            let examples: Vec<&Value> = media.get("example").into_iter().chain(many).collect();
            assert!(!examples.is_empty(), "{place} has no example of {media_type}");
            for example in examples {
                seen += 1;
                let wrong = violations(&document, &media["schema"], example);
                assert!(wrong.is_empty(), "{place}: {wrong:?}");
            }
        }
    };
    for ((method, path), operation) in operations(&document) {
        let place = format!("{method} {path}");
        if let Some(body) = operation.get("requestBody") {
            check(&place, &body["content"]);
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            check(&format!("{place} {status}"), &resolve(&document, response)["content"]);
        }
    }
    assert!(seen > 100, "only {seen} examples");
}

#[test]
fn every_reference_leads_somewhere_and_everything_is_referred_to() {
    fn collect(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    into.insert(reference.clone());
                }
                map.values().for_each(|value| collect(value, into));
            }
            Value::Array(list) => list.iter().for_each(|value| collect(value, into)),
            _ => {}
        }
    }
    let document = document();
    let mut referred = BTreeSet::new();
    collect(&document, &mut referred);
    let mut defined = BTreeSet::new();
    for sort in ["parameters", "responses", "schemas"] {
        let names = document["components"][sort].as_object().unwrap().keys();
        defined.extend(names.map(|name| format!("#/components/{sort}/{name}")));
    }
    assert_eq!(referred, defined);
}

/// What the document shows to send is what the kinds take.
#[test]
fn every_example_of_a_write_is_read_by_its_kind() {
    let mut kinds = Kinds::new();
    counterfoil_ledger::register(&mut kinds);
    let operations = operations(&document());
    let key = Some("k");
    for spec in ROUTES {
        let Some(body) = operations[&(spec.method.to_string(), spec.path.to_owned())].get("requestBody") else {
            continue;
        };
        let json = &body["content"]["application/json"];
        let raw = |value: &Value| RawValue::from_string(value.to_string()).unwrap();
        match spec.action {
            Action::Kind { name, merged } => {
                let mut example = json["example"].clone();
                if let Some(field) = merged {
                    let value = if field == "account" {
                        "cash"
                    } else {
                        "01890a5d-ac96-774b-bcce-b302099a8057"
                    };
                    example[field] = value.into();
                }
                let intent = kinds.intent_of(Limits::default(), TENANT, key, name, &raw(&example));
                assert!(intent.is_ok(), "{name}: {:?}", intent.err());
            }
            Action::Intents => {
                for example in json["examples"].as_object().unwrap().values() {
                    let value = &example["value"];
                    for one in value
                        .as_array()
                        .map_or_else(|| vec![value], |list| list.iter().collect())
                    {
                        let intent = kinds.intent(Limits::default(), TENANT, None, &raw(one));
                        assert!(intent.is_ok(), "{one}: {:?}", intent.err());
                    }
                }
            }
            _ => {}
        }
    }
}

/// What the server answers is what the document says: here as far as no stub is needed.
#[tokio::test]
async fn answers_fit_the_schemas_of_their_status() {
    let document = document();
    let operations = operations(&document);
    let client = Client::new();
    let bearer = format!("Bearer {OPERATOR_KEY}");
    for spec in ROUTES {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let path = spec
            .path
            .replace("{tenant}", "7")
            .replace("{hold}", id)
            .replace("{transfer}", id);
        let path = path.replace("{account}", "cash").replace("{key}", "k");
        let bodies = [
            r#"{"key":"k","name":"x"}"#,
            r#"[{"key":"k","kind":"ledger.hold","body":{}},1]"#,
            r#"{"key":"k"}"#,
        ];
        for (body, query) in bodies.iter().flat_map(|body| [(*body, ""), (*body, "?nonsense=1")]) {
            let ask = match spec.method.as_str() {
                "GET" => {
                    client
                        .get(&format!("{path}{query}"))
                        .instead("authorization", &bearer)
                        .empty()
                        .await
                }
                _ => {
                    client
                        .post(&format!("{path}{query}"))
                        .instead("authorization", &bearer)
                        .send(body)
                        .await
                }
            };
            let operation = &operations[&(spec.method.to_string(), spec.path.to_owned())];
            let place = format!("{} {path}{query} {}", spec.method, ask.status.as_u16());
            let response = &operation["responses"][ask.status.as_str()];
            assert!(!response.is_null(), "{place} is not in the document: {}", ask.text);
            let media_type = ask.header("content-type").split(';').next().unwrap();
            let media = &resolve(&document, response)["content"][media_type];
            assert!(!media.is_null(), "{place}: {media_type} is not in the document");
            if media_type.ends_with("json") && !media_type.contains("ndjson") {
                let wrong = violations(&document, &media["schema"], &ask.json());
                assert!(wrong.is_empty(), "{place}: {wrong:?}\n{}", ask.text);
            }
        }
    }
}

#[tokio::test]
async fn every_code_of_http_is_on_the_page_in_the_order_checked() {
    let page = include_str!("../../../../docs/reference/http.md");
    let part = page
        .split("\n## ")
        .find(|part| part.starts_with("Codes\n"))
        .expect("the codes of HTTP");
    let entries: Vec<_> = part
        .split("\n### ")
        .skip(1)
        .map(|entry| entry.split_once("\n\n").unwrap())
        .collect();
    let listed: Vec<_> = entries.iter().map(|(code, _)| *code).collect();
    assert_eq!(listed, counterfoil_server::codes::ALL);
    for (code, text) in entries {
        let (status, _) = text.split_once(" · ").unwrap_or_else(|| panic!("{code} has no status"));
        assert!((400..600).contains(&status.parse::<u16>().unwrap()), "{code}");
    }
}

#[tokio::test]
async fn whoever_gets_a_problem_can_read_what_its_code_means() {
    let page = Client::new().get("/codes").without("authorization").empty().await;
    assert_eq!(
        (page.status.as_u16(), page.header("content-type")),
        (200, "text/html; charset=utf-8")
    );
    let all = counterfoil_server::codes::ALL
        .iter()
        .chain(counterfoil_ledger::codes::ALL)
        .chain(counterfoil_events::CODES)
        .chain(&["body_invalid", "key_missing", "all_empty"]);
    for code in all {
        let anchor = format!("<h3 id=\"{code}\">");
        assert_eq!(page.text.matches(&anchor).count(), 1, "{code}");
    }
}
