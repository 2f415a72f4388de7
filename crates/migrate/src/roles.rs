//! The five roles and what limits them.

use counterfoil_pg::Role;

/// For every role. Every statement names its schema; an empty search path keeps the few that would
/// not from finding somebody else's objects.
const COMMON: &[(&str, &str)] = &[("TimeZone", "UTC"), ("search_path", "")];

/// What `ALTER ROLE … SET` sets for `role`, in the whole cluster.
///
/// `init` sets these again each time it runs. Whoever wants other limits says so with `ALTER ROLE …
/// IN DATABASE … SET`, which is stronger and which `init` leaves alone.
pub(crate) fn settings(role: Role) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own: &[(&str, &str)] = match role {
        // A migration may run for long, but must never make others queue behind its wait for a lock.
        Role::Owner => &[
            ("statement_timeout", "0"),
            ("lock_timeout", "5s"),
            ("idle_in_transaction_session_timeout", "60s"),
        ],
        Role::App => &[
            ("statement_timeout", "15s"),
            ("lock_timeout", "5s"),
            ("idle_in_transaction_session_timeout", "30s"),
        ],
        // A lane sends the same few statements with arrays of every length: planning them for each
        // would cost more than running them, and a JIT compilation more than the batch.
        Role::Lane => &[
            ("statement_timeout", "15s"),
            ("lock_timeout", "5s"),
            ("idle_in_transaction_session_timeout", "30s"),
            ("plan_cache_mode", "force_generic_plan"),
            ("jit", "off"),
            // Every statement of a lane finds its rows by key. On tables that were never
            // analysed the planner would hash or merge whole tables instead, and keep that plan.
            ("enable_seqscan", "off"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
        ],
        Role::Ops => &[
            ("statement_timeout", "60s"),
            ("lock_timeout", "5s"),
            ("idle_in_transaction_session_timeout", "60s"),
            ("jit", "off"),
        ],
        Role::Report => &[
            ("statement_timeout", "5min"),
            ("lock_timeout", "5s"),
            ("idle_in_transaction_session_timeout", "60s"),
            ("default_transaction_read_only", "on"),
        ],
    };
    COMMON.iter().chain(own).copied()
}

/// The password as the server keeps it, so that the password itself is in no statement, and so in no
/// log of statements.
pub(crate) fn verifier(password: &str) -> String {
    postgres_protocol::password::scram_sha_256(password.as_bytes())
}

/// A literal. Only for what PostgreSQL takes no parameter for, and only in this crate.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_its_limits() {
        for role in Role::ALL {
            let names: Vec<_> = settings(role).map(|(name, _)| name).collect();
            for needed in [
                "statement_timeout",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
                "TimeZone",
            ] {
                assert_eq!(
                    names.iter().filter(|name| **name == needed).count(),
                    1,
                    "{needed} of {role:?}"
                );
            }
        }
    }

    #[test]
    fn the_password_is_not_in_its_verifier() {
        let made = verifier("hunter2");
        assert!(
            made.starts_with("SCRAM-SHA-256$4096:") && !made.contains("hunter2"),
            "{made}"
        );
        assert_ne!(made, verifier("hunter2"), "salted");
    }

    #[test]
    fn quotes_do_not_end_a_quotation() {
        assert_eq!(literal("o'clock"), "'o''clock'");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }
}
