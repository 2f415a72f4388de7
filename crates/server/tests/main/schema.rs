//! As much of JSON Schema as the document uses.

use serde_json::Value;

/// Follows a `$ref`.
pub fn resolve<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    match value.get("$ref").and_then(Value::as_str) {
        None => value,
        Some(reference) => {
            let target = document.pointer(reference.trim_start_matches('#'));
            resolve(document, target.unwrap_or_else(|| panic!("{reference} leads nowhere")))
        }
    }
}

/// Where `value` is not what `schema` says.
pub fn violations(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    check(document, schema, value, "$", &mut out);
    out
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let schema = resolve(document, schema);
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let tried: Vec<_> = choices
            .iter()
            .map(|choice| violations(document, choice, value))
            .collect();
        if tried.iter().filter(|wrong| wrong.is_empty()).count() != 1 {
            out.push(format!("{at} fits not exactly one of {}: {tried:?}", choices.len()));
        }
        return;
    }
    if let Some(types) = schema.get("type") {
        let fits = |name: &Value| name.as_str().is_some_and(|name| is_a(value, name));
        let fits = types
            .as_array()
            .map_or_else(|| fits(types), |types| types.iter().any(fits));
        if !fits {
            out.push(format!("{at} is {value}, not {types}"));
            return;
        }
    }
    if let Some(list) = schema.get("enum").and_then(Value::as_array)
        && !list.contains(value)
    {
        out.push(format!("{at} is {value}, none of {list:?}"));
    }
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        out.push(format!("{at} is {value}"));
    }
    match value {
        Value::Object(map) => object(document, schema, map, at, out),
        Value::Array(list) => {
            bounds(schema, "minItems", "maxItems", list.len(), at, out);
            if let Some(items) = schema.get("items") {
                for (i, item) in list.iter().enumerate() {
                    check(document, items, item, &format!("{at}[{i}]"), out);
                }
            }
        }
        Value::String(text) => {
            bounds(schema, "minLength", "maxLength", text.chars().count(), at, out);
            let fits = match schema.get("format").and_then(Value::as_str) {
                Some("date-time") => text.parse::<jiff::Timestamp>().is_ok(),
                Some("uuid") => uuid::Uuid::try_parse(text).is_ok(),
                _ => true,
            };
            if !fits {
                out.push(format!("{at} is {text:?}, no {}", schema["format"]));
            }
        }
        _ => {}
    }
}

fn object(document: &Value, schema: &Value, map: &serde_json::Map<String, Value>, at: &str, out: &mut Vec<String>) {
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if !map.contains_key(name.as_str().unwrap()) {
            out.push(format!("{at} has no {name}"));
        }
    }
    for (name, value) in map {
        match schema.get("properties").and_then(|properties| properties.get(name)) {
            Some(property) => check(document, property, value, &format!("{at}.{name}"), out),
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                out.push(format!("{at} has {name}, which is not in the schema"));
            }
            None => {}
        }
    }
}

fn bounds(schema: &Value, least: &str, most: &str, size: usize, at: &str, out: &mut Vec<String>) {
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
    let size = size as u64;
    if bound(least).is_some_and(|least| size < least) || bound(most).is_some_and(|most| size > most) {
        out.push(format!("{at} has a size of {size}"));
    }
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        _ => false,
    }
}

#[test]
fn what_does_not_fit_is_found() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": {"type": ["string", "null"], "maxLength": 2}, "b": {"oneOf": [{"type": "integer"}, {"enum": ["x"]}]},
                       "c": {"type": "array", "items": {"type": "string", "format": "uuid"}}}
    });
    let wrong = |value| violations(&Value::Null, &schema, &value).len();
    assert_eq!(wrong(serde_json::json!({"a": null, "b": "x", "c": []})), 0);
    for bad in [
        serde_json::json!({}),
        serde_json::json!({"a": 1}),
        serde_json::json!({"a": "abc"}),
        serde_json::json!({"a": "", "b": "y"}),
        serde_json::json!({"a": "", "c": ["1"]}),
        serde_json::json!({"a": "", "d": 1}),
        serde_json::json!([]),
    ] {
        assert_eq!(wrong(bad.clone()), 1, "{bad}");
    }
}
