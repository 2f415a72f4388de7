//! A tenant and its settings.

use std::fmt;
use std::str::FromStr;

use counterfoil_pg::TenantId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Invalid;

/// A tenant as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    /// An IANA name.
    pub zone: String,
    /// A name of `pg_collation`.
    pub collation: String,
    pub rounding: Rounding,
    pub created_at: Timestamp,
}

/// What becomes of the half of a smallest unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// Away from zero: 0.5 → 1, −0.5 → −1.
    #[default]
    HalfUp,
    /// To the even neighbour: 0.5 → 0, 1.5 → 2.
    HalfEven,
    /// Towards zero: 0.5 → 0.
    HalfDown,
    /// Any fraction, away from zero.
    Up,
    /// Any fraction, towards zero.
    Down,
}

impl Rounding {
    pub const ALL: [Self; 5] = [Self::HalfUp, Self::HalfEven, Self::HalfDown, Self::Up, Self::Down];

    /// As it is stored and sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HalfUp => "half_up",
            Self::HalfEven => "half_even",
            Self::HalfDown => "half_down",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Rounding {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|rounding| rounding.as_str() == text)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::as_str).join(", ");
                Invalid::new("rounding", format!("{text:?} is not one of {known}"))
            })
    }
}

/// A tenant to be made. What can be known without the database has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTenant {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) collation: String,
    pub(crate) rounding: Rounding,
}

impl NewTenant {
    /// Longest name, in characters; also a CHECK of the table.
    pub const NAME_MAX: usize = 200;

    /// With the default settings: UTC, collation C, rounding half up.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        let name = name.trim();
        if name.is_empty() {
            return Err(Invalid::new("name", "is empty"));
        }
        if name.chars().count() > Self::NAME_MAX {
            return Err(Invalid::new(
                "name",
                format!("is longer than {} characters", Self::NAME_MAX),
            ));
        }
        if name.contains(char::is_control) {
            return Err(Invalid::new("name", "has a control character in it"));
        }
        Ok(Self {
            name: name.to_owned(),
            zone: "UTC".to_owned(),
            collation: "C".to_owned(),
            rounding: Rounding::default(),
        })
    }

    /// An IANA name in any case, stored as IANA spells it.
    pub fn zone(mut self, zone: &str) -> Result<Self, Invalid> {
        let unknown = || {
            Invalid::new(
                "zone",
                format!("{zone:?} is no time zone of the IANA database, such as Asia/Shanghai"),
            )
        };
        let found = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
        if found.is_unknown() {
            return Err(unknown());
        }
        found.iana_name().ok_or_else(unknown)?.clone_into(&mut self.zone);
        Ok(self)
    }

    /// Whether the server has it is only known when the tenant is made.
    pub fn collation(mut self, collation: &str) -> Result<Self, Invalid> {
        // Longer names do not exist in PostgreSQL, and would be cut silently.
        if collation.is_empty() || collation.len() > 63 || collation.contains('\0') {
            return Err(Self::no_such_collation(collation));
        }
        collation.clone_into(&mut self.collation);
        Ok(self)
    }

    #[must_use]
    pub fn rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// The first field in which a tenant is not what was asked for.
    pub(crate) fn differs_from(&self, tenant: &Tenant) -> Option<&'static str> {
        [
            ("name", self.name == tenant.name),
            ("zone", self.zone == tenant.zone),
            ("collation", self.collation == tenant.collation),
            ("rounding", self.rounding == tenant.rounding),
        ]
        .into_iter()
        .find_map(|(field, same)| (!same).then_some(field))
    }

    pub(crate) fn no_such_collation(collation: &str) -> Invalid {
        Invalid::new(
            "collation",
            format!("{collation:?} is no collation of this database: see pg_collation"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(result: Result<NewTenant, Invalid>) -> &'static str {
        result.expect_err("should not be taken").field
    }

    #[test]
    fn names_are_trimmed_and_bounded() {
        assert_eq!(NewTenant::new("  Kiosk 7 ").unwrap().name, "Kiosk 7");
        assert_eq!(NewTenant::new(&"店".repeat(200)).unwrap().name.chars().count(), 200);
        for bad in ["", "   ", "a\u{0}b", "a\nb", &"x".repeat(201)] {
            assert_eq!(field(NewTenant::new(bad)), "name", "{bad:?}");
        }
    }

    #[test]
    fn zones_are_those_of_iana() {
        let with = |zone| NewTenant::new("x").unwrap().zone(zone);
        assert_eq!(with("asia/shanghai").unwrap().zone, "Asia/Shanghai");
        assert_eq!(with("UTC").unwrap().zone, "UTC");
        for bad in [
            "",
            "Mars/Olympus",
            "+08:00",
            "Etc/Unknown",
            "../../etc/passwd",
            "a\0b",
            "EST5EDT4,M3",
        ] {
            assert_eq!(field(with(bad)), "zone", "{bad:?}");
        }
    }

    #[test]
    fn roundings_are_read_as_they_are_written() {
        for rounding in Rounding::ALL {
            assert_eq!(rounding.to_string().parse(), Ok(rounding));
        }
        assert_eq!("HALF_UP".parse::<Rounding>().unwrap_err().field, "rounding");
    }

    #[test]
    fn a_collation_has_a_possible_name() {
        let with = |collation: &str| NewTenant::new("x").unwrap().collation(collation);
        assert_eq!(with("zh-x-icu").unwrap().collation, "zh-x-icu");
        for bad in ["", "a\0", &"x".repeat(64)] {
            assert_eq!(field(with(bad)), "collation", "{bad:?}");
        }
    }
}
