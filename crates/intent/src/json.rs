//! JSON that is kept as a whole: nothing in it may be there twice.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads a JSON text in which no object has a member twice, at any depth. Of two, programs that read it
/// later would believe different ones.
///
/// # Errors
/// That it is no JSON, contains half a surrogate pair, is nested deeper than 128 levels, or names a member
/// twice.
pub fn json(text: &str) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Once.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Whether a text or a name in it contains U+0000, which PostgreSQL keeps in no text.
#[must_use]
pub fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is not finite"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Once)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the member `{name:.80}` is there twice")));
            }
            let value = members.next_value_seed(Once)?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_member_that_is_there_twice_is_refused_at_any_depth() {
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":[{"c":1,"c":2}]}}"#,
            r#"[{"a":1,"\u0061":2}]"#,
        ] {
            let error = json(bad).unwrap_err().to_string();
            assert!(error.contains("is there twice"), "{bad}: {error}");
        }
        assert!(json(r#"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#).is_ok());
        assert!(json("{} {}").is_err());
    }

    #[test]
    fn deep_nesting_is_refused_and_not_followed() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(json(&deep).is_err());
    }

    proptest! {
        #[test]
        fn whatever_else_is_read_as_serde_json_reads_it(numbers in proptest::collection::vec(any::<f64>(), 0..5), n: u64, i: i64, text: String, flag: bool) {
            let value = serde_json::json!({"numbers": numbers, "n": n, "i": i, "text": text, "flag": [flag, null]});
            let written = value.to_string();
            prop_assert_eq!(json(&written).unwrap(), serde_json::from_str::<Value>(&written).unwrap());
        }
    }
}
