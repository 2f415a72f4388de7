//! Random numbers and keys that cost next to nothing, since the load shares the cores.

use std::time::{SystemTime, UNIX_EPOCH};

/// `splitmix64`: passes every statistical test there is need for here, in four operations.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by the system: two runs on one database must not make the same keys.
    pub(crate) fn new() -> Self {
        Self(rand::random())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        // The high half of the product: as even as 2^32 over `bound` allows.
        let high = self.next() >> 32;
        u32::try_from((high * u64::from(bound)) >> 32).expect("below a u32")
    }

    /// Two different numbers below `bound`, which is at least 2.
    pub(crate) fn pair(&mut self, bound: u32) -> (u32, u32) {
        let first = self.below(bound);
        let second = self.below(bound - 1);
        (first, if second >= first { second + 1 } else { second })
    }
}

/// The length of a hyphenated UUID.
pub(crate) const KEY_LEN: usize = 36;

/// Milliseconds since 1970, for [`write_key`].
pub(crate) fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

/// Writes a new UUIDv7 as text.
pub(crate) fn write_key(out: &mut [u8], millis: u64, random: &mut Random) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let (a, b) = (random.next(), random.next());
    let high = (millis << 16) | 0x7000 | (a & 0x0fff);
    let low = (b & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
    let mut at = 0;
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out[at] = b'-';
            at += 1;
        }
        out[at] = HEX[usize::from(byte >> 4)];
        out[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
}

/// Writes a number with leading zeros over the whole of `out`.
pub(crate) fn write_digits(out: &mut [u8], mut number: u32) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_uuids_of_version_7_and_of_their_time() {
        let mut random = Random::new();
        let mut out = [0; KEY_LEN];
        let millis = now_millis();
        write_key(&mut out, millis, &mut random);
        let uuid = uuid::Uuid::try_parse(std::str::from_utf8(&out).unwrap()).unwrap();
        assert_eq!(uuid.get_version(), Some(uuid::Version::SortRand));
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        let (seconds, nanos) = uuid.get_timestamp().unwrap().to_unix();
        assert_eq!(seconds * 1_000 + u64::from(nanos / 1_000_000), millis);
        assert_eq!(uuid.to_string().as_bytes(), out);
    }

    #[test]
    fn pairs_are_different_and_reach_every_account() {
        let mut random = Random::new();
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            let (first, second) = random.pair(5);
            assert_ne!(first, second);
            seen[first as usize] = true;
            seen[second as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn digits_have_leading_zeros() {
        let mut out = [0; 6];
        write_digits(&mut out, 1_203);
        assert_eq!(&out, b"001203");
    }
}
