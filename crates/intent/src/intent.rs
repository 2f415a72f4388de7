//! One thing a caller wants to happen once.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use counterfoil_pg::TenantId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Invalid;
use crate::hash::{Fields, Hashes};
use crate::key::Key;
use crate::kind::{AnyKind, Kinds};

/// Limits on what one request may carry.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one intent's body as it is sent.
    pub body: usize,
    /// Effects of one `all`.
    pub effects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 * 1024,
            effects: 100,
        }
    }
}

pub(crate) struct Effect {
    pub(crate) kind: Arc<dyn AnyKind>,
    pub(crate) body: Box<dyn Any + Send + Sync>,
}

/// A parsed and checked intent, ready for its lane.
pub struct Intent {
    pub tenant: TenantId,
    pub key: Key,
    pub(crate) effects: Vec<Effect>,
    shape: Shape,
    pub(crate) hashes: Hashes,
    pub(crate) deadline: Option<Instant>,
    /// What share of a batch and of its tenant's turn it takes: one for each effect, and one for
    /// each KiB of their bodies.
    pub(crate) weight: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow)]
    key: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    #[serde(borrow)]
    all: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl Kinds {
    /// Reads an intent as it stands in a request: `{"key", "kind", "body"}` or `{"key", "all": […]}`.
    /// `header` is the `Idempotency-Key` header of the request, if this is its only intent.
    pub fn intent(
        &self,
        limits: Limits,
        tenant: TenantId,
        header: Option<&str>,
        raw: &RawValue,
    ) -> Result<Intent, Invalid> {
        let envelope: Envelope<'_> = Self::read_object(raw)?;
        let key = one_key(header, envelope.key.as_deref())?;
        match (envelope.kind, envelope.body, envelope.all) {
            (Some(kind), Some(body), None) => {
                let effect = self.effect(limits, &kind, body, "body")?;
                Ok(Intent::new(tenant, key, vec![effect], Shape::Body, body.get().len()))
            }
            (None, None, Some(parts)) => {
                if parts.is_empty() {
                    return Err(Invalid::new("all_empty", "all", "an `all` needs at least one effect"));
                }
                if parts.len() > limits.effects {
                    return Err(Invalid::new(
                        "all_too_long",
                        "all",
                        format!("{} effects; {} is the most in one intent", parts.len(), limits.effects),
                    ));
                }
                let mut effects = Vec::with_capacity(parts.len());
                let bytes = parts.iter().map(|part| part.body.get().len()).sum();
                for (i, part) in parts.iter().enumerate() {
                    let effect = self.effect(limits, &part.kind, part.body, "body");
                    effects.push(effect.map_err(|invalid| invalid.within(&format!("all[{i}]")))?);
                }
                Ok(Intent::new(tenant, key, effects, Shape::All, bytes))
            }
            _ => Err(Invalid::new(
                "intent_shape",
                "",
                "an intent is {\"key\", \"kind\", \"body\"} or {\"key\", \"all\": [{\"kind\", \"body\"}, …]}",
            )),
        }
    }

    /// Reads an intent of a known kind whose fields, and perhaps its key, stand side by side: the
    /// form of the per-kind routes.
    pub fn intent_of(
        &self,
        limits: Limits,
        tenant: TenantId,
        header: Option<&str>,
        kind: &str,
        raw: &RawValue,
    ) -> Result<Intent, Invalid> {
        let fields: Members<'_> = Self::read(raw)?;
        let mut key = None;
        let mut rest = String::with_capacity(raw.get().len());
        for (name, value) in &fields.0 {
            if name == "key" {
                let text: String = Self::read(value).map_err(|invalid| invalid.within("key"))?;
                if key.replace(text).is_some() {
                    return Err(Invalid::new("body_invalid", "key", "the field `key` is there twice"));
                }
                continue;
            }
            rest.push(if rest.is_empty() { '{' } else { ',' });
            rest.push_str(&serde_json::to_string(name).expect("a string is always JSON"));
            rest.push(':');
            rest.push_str(value.get());
        }
        if rest.is_empty() {
            rest.push('{');
        }
        rest.push('}');
        let key = one_key(header, key.as_deref())?;
        let body = RawValue::from_string(rest).expect("made of JSON");
        let effect = self.effect(limits, kind, &body, "")?;
        Ok(Intent::new(
            tenant,
            key,
            vec![effect],
            Shape::SideBySide,
            body.get().len(),
        ))
    }

    /// An intent of our own workers and imports, of a body that never was JSON.
    ///
    /// # Panics
    /// If the kind is not registered.
    #[must_use]
    pub fn internal<K: crate::Kind>(&self, tenant: TenantId, key: Key, body: K::Body) -> Intent {
        let kind = Arc::clone(self.get(K::NAME).expect("the kind is registered"));
        Intent::new(
            tenant,
            key,
            vec![Effect {
                kind,
                body: Box::new(body),
            }],
            Shape::SideBySide,
            0,
        )
    }

    fn effect(&self, limits: Limits, kind: &str, body: &RawValue, at: &str) -> Result<Effect, Invalid> {
        let Some(kind) = self.get(kind).filter(|kind| kind.public()) else {
            return Err(Invalid::new(
                "kind_unknown",
                "kind",
                format!(
                    "there is no kind of that name; the kinds are {}",
                    self.names().join(", ")
                ),
            ));
        };
        if body.get().len() > limits.body {
            return Err(Invalid::new(
                "body_too_large",
                at,
                format!("the body has {} bytes; {} is the most", body.get().len(), limits.body),
            ));
        }
        let body = kind
            .parse(body)
            .map_err(|invalid| if at.is_empty() { invalid } else { invalid.within(at) })?;
        Ok(Effect {
            kind: Arc::clone(kind),
            body,
        })
    }
}

/// The members of a JSON object in order, repeats included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut out = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    out.push(entry);
                }
                Ok(Members(out))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// The key of a request: as its header and its body say it.
///
/// # Errors
/// `key_missing`, `key_conflict`, or what is wrong with the key itself.
pub fn one_key(header: Option<&str>, body: Option<&str>) -> Result<Key, Invalid> {
    match (header, body) {
        (None, None) => Err(Invalid::new(
            "key_missing",
            "key",
            "every write needs a key: the Idempotency-Key header or the field `key`",
        )),
        (Some(one), None) | (None, Some(one)) => Key::parse(one),
        (Some(header), Some(body)) => {
            let (header, body) = (Key::parse(header)?, Key::parse(body)?);
            if header == body {
                Ok(header)
            } else {
                Err(Invalid::new(
                    "key_conflict",
                    "key",
                    "the Idempotency-Key header and the field `key` differ",
                ))
            }
        }
    }
}

/// How an intent was written, and so what its fields are called towards its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `{"key", "kind", "body"}`
    Body,
    /// `{"key", "all"}`
    All,
    /// The fields of the body beside the key.
    SideBySide,
}

impl Intent {
    fn new(tenant: TenantId, key: Key, effects: Vec<Effect>, shape: Shape, bytes: usize) -> Self {
        let all = shape == Shape::All;
        let mut fields = Fields::new();
        fields.field("kind", if all { b"all" } else { effects[0].kind.name().as_bytes() });
        for (i, effect) in effects.iter().enumerate() {
            if all {
                fields.set_prefix(format!("all[{i}]."));
                fields.field("kind", effect.kind.name().as_bytes());
                fields.set_prefix(format!("all[{i}].body."));
            } else if shape == Shape::Body {
                fields.set_prefix("body.".to_owned());
            }
            effect.kind.fields(&*effect.body, &mut fields);
        }
        Self {
            tenant,
            key,
            weight: effects.len() + bytes / 1024,
            effects,
            shape,
            hashes: fields.finish(),
            deadline: None,
        }
    }

    /// Not to be started after this moment.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Written as `{"all": […]}`: its result is one too, even for a single effect.
    pub(crate) fn is_all(&self) -> bool {
        self.shape == Shape::All
    }

    /// What a field of the body of an effect is called towards the caller: as the request wrote it.
    pub(crate) fn path(&self, effect: usize, field: &str) -> String {
        let body = match self.shape {
            Shape::SideBySide => return field.to_owned(),
            Shape::Body => "body".to_owned(),
            Shape::All => format!("all[{effect}].body"),
        };
        match field {
            "" => body,
            field if field.starts_with('[') => format!("{body}{field}"),
            field => format!("{body}.{field}"),
        }
    }

    pub(crate) fn kind_name(&self) -> &'static str {
        if self.is_all() {
            "all"
        } else {
            self.effects[0].kind.name()
        }
    }
}
