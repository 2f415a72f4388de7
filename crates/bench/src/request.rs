//! Requests prepared once; before each sending only keys and accounts are written over.

use crate::bench::{Bench, Pick};
use crate::http::post_intents;
use crate::random::{KEY_LEN, Random, now_millis, write_digits, write_key};

/// Digits of an account's number: all requests of a kind have one length.
const DIGITS: usize = 6;

/// The asset of all accounts, and its decimals.
pub(crate) const ASSET: &str = "BENCH";
pub(crate) const SCALE: u8 = 2;

/// What one transfer moves: one cent.
const AMOUNT: &str = "0.01";

/// The account that all hot transfers come from.
pub(crate) const HOT: &str = "hot";

/// The lowest a balance may go: a limit is checked in every transfer, and never met.
pub(crate) const FLOOR: &str = "-1000000000.00";

/// The code of an account.
pub(crate) fn account(number: u32) -> String {
    format!("a{number:0DIGITS$}")
}

/// Where in the bytes an intent's changing parts lie.
#[derive(Debug, Clone, Copy)]
struct Places {
    key: usize,
    /// The digits of the accounts.
    from: Option<usize>,
    to: usize,
}

/// A request for transfers.
#[derive(Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    intents: Vec<Places>,
    accounts: u32,
    random: Random,
}

impl Request {
    pub(crate) fn new(bench: &Bench, tenant: i64, host: &str, key: &str) -> Self {
        let mut body = Vec::new();
        let mut intents = Vec::new();
        for at in 0..bench.batch.unwrap_or(1) {
            if bench.batch.is_some() {
                body.push(if at == 0 { b'[' } else { b',' });
            }
            intents.push(intent(&mut body, bench.pick));
        }
        if bench.batch.is_some() {
            body.push(b']');
        }
        let mut bytes = post_intents(tenant, host, key, body.len());
        let head = bytes.len();
        for places in &mut intents {
            places.key += head;
            places.to += head;
            places.from = places.from.map(|from| from + head);
        }
        bytes.append(&mut body);
        Self {
            bytes,
            intents,
            accounts: bench.accounts,
            random: Random::new(),
        }
    }

    /// How many intents it carries.
    pub(crate) fn intents(&self) -> usize {
        self.intents.len()
    }

    /// The bytes of the next request.
    pub(crate) fn next(&mut self) -> &[u8] {
        let millis = now_millis();
        for places in &self.intents {
            write_key(
                &mut self.bytes[places.key..places.key + KEY_LEN],
                millis,
                &mut self.random,
            );
            let (from, to) = self.random.pair(self.accounts);
            if let Some(at) = places.from {
                write_digits(&mut self.bytes[at..at + DIGITS], from);
            }
            write_digits(&mut self.bytes[places.to..places.to + DIGITS], to);
        }
        &self.bytes
    }
}

/// Appends one intent with blanks to be written over.
fn intent(body: &mut Vec<u8>, pick: Pick) -> Places {
    let mut put = |text: &str| {
        body.extend_from_slice(text.as_bytes());
        body.len()
    };
    let key = put("{\"key\":\"");
    put(&"-".repeat(KEY_LEN));
    put("\",\"kind\":\"ledger.transfer\",\"body\":{\"from\":\"");
    let from = match pick {
        Pick::Hot => {
            put(HOT);
            None
        }
        Pick::Random => Some(put(&account(0)) - DIGITS),
    };
    put("\",\"to\":\"");
    let to = put(&account(0)) - DIGITS;
    put("\",\"amount\":\"");
    put(AMOUNT);
    put("\"}}");
    Places { key, from, to }
}

/// A body that makes the asset known and opens the hot account.
pub(crate) fn first_body(random: &mut Random) -> Vec<u8> {
    let (asset, open) = (key(random), open(HOT, random));
    format!(r#"[{{"key":"{asset}","kind":"ledger.asset","body":{{"code":"{ASSET}","scale":{SCALE}}}}},{open}]"#)
        .into_bytes()
}

/// A body that opens the accounts of these numbers.
pub(crate) fn open_body(numbers: std::ops::Range<u32>, random: &mut Random) -> Vec<u8> {
    let all: Vec<String> = numbers.map(|number| open(&account(number), random)).collect();
    format!("[{}]", all.join(",")).into_bytes()
}

fn open(account: &str, random: &mut Random) -> String {
    let key = key(random);
    format!(
        r#"{{"key":"{key}","kind":"ledger.open","body":{{"account":"{account}","asset":"{ASSET}","floor":"{FLOOR}"}}}}"#
    )
}

fn key(random: &mut Random) -> String {
    let mut key = [0; KEY_LEN];
    write_key(&mut key, now_millis(), random);
    key.iter().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn body(bytes: &[u8]) -> Value {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(head.starts_with("POST /v1/tenants/7/intents HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("Authorization: Bearer secret"), "{head}");
        serde_json::from_str(body).unwrap()
    }

    fn is_transfer(intent: &Value, hot: bool) {
        assert_eq!(intent["kind"], "ledger.transfer");
        let body = &intent["body"];
        assert_eq!(body["amount"], AMOUNT);
        assert_eq!(body["from"] == HOT, hot);
        assert_ne!(body["from"], body["to"]);
        let to = body["to"].as_str().unwrap();
        assert!(to[1..].parse::<u32>().unwrap() < 100_000, "{to}");
    }

    #[test]
    fn a_single_transfer_is_one_object_and_never_the_same_key() {
        for (name, hot) in [("transfers-hot", true), ("transfers-random", false)] {
            let mut request = Request::new(&Bench::named(name).unwrap(), 7, "h:1", "secret");
            let (first, second) = (body(request.next()), body(request.next()));
            is_transfer(&first, hot);
            is_transfer(&second, hot);
            assert_ne!(first["key"], second["key"]);
        }
    }

    #[test]
    fn a_batch_is_an_array_of_different_transfers() {
        let mut request = Request::new(&Bench::named("transfers-random-batch").unwrap(), 7, "h:1", "secret");
        let body = body(request.next());
        let items = body.as_array().unwrap();
        assert_eq!(items.len(), request.intents());
        items.iter().for_each(|item| is_transfer(item, false));
        let keys: std::collections::BTreeSet<_> = items.iter().map(|item| item["key"].as_str().unwrap()).collect();
        assert_eq!(keys.len(), items.len());
    }

    #[test]
    fn accounts_are_opened_with_the_asset_they_name() {
        let mut random = Random::new();
        let first: Value = serde_json::from_slice(&first_body(&mut random)).unwrap();
        assert_eq!(first[0]["body"]["code"], ASSET);
        assert_eq!(first[1]["body"]["account"], HOT);
        let rest: Value = serde_json::from_slice(&open_body(3..5, &mut random)).unwrap();
        assert_eq!(rest[1]["body"]["account"], "a000004");
        assert_eq!(rest[1]["body"]["asset"], ASSET);
    }
}
