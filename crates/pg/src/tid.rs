//! Where a row version lies.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A `ctid`: block and line.
///
/// It names a row version as long as nobody can update or delete the row: from the moment a
/// transaction has locked it until that transaction ends, or updates it itself. Finding a row by its
/// `ctid` costs one page, by its key three or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tid {
    block: u32,
    line: u16,
}

impl FromSql<'_> for Tid {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let [a, b, c, d, e, f] = *<&[u8; 6]>::try_from(raw)?;
        Ok(Self {
            block: u32::from_be_bytes([a, b, c, d]),
            line: u16::from_be_bytes([e, f]),
        })
    }

    accepts!(TID);
}

impl ToSql for Tid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u32(self.block);
        out.put_u16(self.line);
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_server() {
        let raw = [0, 1, 2, 3, 0, 7];
        let tid = Tid::from_sql(&Type::TID, &raw).unwrap();
        assert_eq!(
            tid,
            Tid {
                block: 0x0001_0203,
                line: 7
            }
        );
        let mut out = BytesMut::new();
        tid.to_sql(&Type::TID, &mut out).unwrap();
        assert_eq!(&out[..], raw);
        assert!(Tid::from_sql(&Type::TID, &raw[1..]).is_err());
    }
}
