//! What a SQLSTATE tells us to do next.

use tokio_postgres::error::{DbError, Severity};

/// What to do after an error, by class (section "Failure classes" of `docs/ARCHITECTURE.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Run the whole transaction again after a jittered pause: `40001`, `40P01`, `55P03`, and rows
    /// that somebody else changed after they were loaded without a lock.
    Retry,
    /// Take another connection, then run it again: `57P01`–`57P03`, `25006`, `53300`, `08…`, a
    /// connection lost before COMMIT was sent, and a pool whose connections were all busy.
    Reconnect,
    /// Forget the prepared statements, then run it again: `26000`, `42P05`, the `0A000` of a
    /// stale cached plan.
    Reprepare,
    /// Make the missing partition, then run it again: the `23514` of "no partition of relation".
    MissingPartition,
    /// `23505`: the caller knows which constraints mean "run it again".
    Unique,
    /// The data of one unit is bad: what remains of classes 22, 23 and 54. A batch is bisected.
    Data,
    /// Anything else: nothing is done again.
    Other,
}

impl Class {
    /// The class of an error that the server reported.
    pub(crate) fn of(error: &DbError) -> Self {
        Self::of_parts(
            error.code().code(),
            error.routine().unwrap_or_default(),
            // A FATAL ends the session, whatever it is about.
            error.parsed_severity() == Some(Severity::Fatal),
        )
    }

    /// `routine` is the C function that raised the error. Unlike the message it is not translated,
    /// and two SQLSTATEs are only told apart by it.
    fn of_parts(sqlstate: &str, routine: &str, fatal: bool) -> Self {
        match sqlstate {
            "40001" | "40P01" | "55P03" => Self::Retry,
            "57P01" | "57P02" | "57P03" | "25006" | "53300" => Self::Reconnect,
            // The session was ended for being idle too long, in a transaction or out of one, or
            // for a transaction that took too long: a connection lost before COMMIT.
            "25P03" | "25P04" | "57P05" if fatal => Self::Reconnect,
            "26000" | "42P05" => Self::Reprepare,
            // "cached plan must not change result type". Every other 0A000 is a feature that the
            // server does not have, today and tomorrow.
            "0A000" if routine == "RevalidateCachedQuery" => Self::Reprepare,
            // "no partition of relation … found for row". A CHECK violation has the same SQLSTATE,
            // and so has a row put directly into a partition where it does not belong.
            "23514" if routine == "ExecFindPartition" => Self::MissingPartition,
            "23505" => Self::Unique,
            _ => match sqlstate.get(..2) {
                Some("08") => Self::Reconnect,
                Some("22" | "23" | "54") => Self::Data,
                _ => Self::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sqlstate_has_its_class() {
        let table: &[(&str, &str, bool, Class)] = &[
            ("40001", "", false, Class::Retry),
            ("40P01", "DeadLockReport", false, Class::Retry),
            ("55P03", "ProcSleep", false, Class::Retry),
            ("40002", "", false, Class::Other),
            ("40003", "", false, Class::Other),
            ("55000", "", false, Class::Other),
            ("55006", "", false, Class::Other),
            // The connection, or the server behind it.
            ("57P01", "ProcessInterrupts", true, Class::Reconnect),
            ("57P02", "quickdie", true, Class::Reconnect),
            ("57P03", "", true, Class::Reconnect),
            ("57P04", "", true, Class::Other), // the database was dropped
            ("57P05", "ProcessInterrupts", true, Class::Reconnect),
            ("25006", "PreventCommandIfReadOnly", false, Class::Reconnect),
            ("25P02", "", false, Class::Other),
            ("25P03", "ProcessInterrupts", true, Class::Reconnect),
            ("25P04", "ProcessInterrupts", true, Class::Reconnect),
            ("53300", "InitProcess", true, Class::Reconnect),
            ("08006", "", true, Class::Reconnect),
            ("08P01", "", true, Class::Reconnect), // what PgBouncer says when its server is gone
            ("08000", "", false, Class::Reconnect),
            // Prepared statements.
            ("26000", "FetchPreparedStatement", false, Class::Reprepare),
            ("42P05", "StorePreparedStatement", false, Class::Reprepare),
            ("0A000", "RevalidateCachedQuery", false, Class::Reprepare),
            ("0A000", "transformSelectStmt", false, Class::Other),
            ("0A000", "", false, Class::Other),
            // Constraints.
            ("23514", "ExecFindPartition", false, Class::MissingPartition),
            ("23514", "ExecConstraints", false, Class::Data),
            ("23514", "ExecPartitionCheckEmitError", false, Class::Data),
            ("23505", "_bt_check_unique", false, Class::Unique),
            ("23502", "ExecConstraints", false, Class::Data),
            ("23503", "RI_FKey_check", false, Class::Data),
            ("23P01", "", false, Class::Data),
            ("23000", "", false, Class::Data),
            // Data.
            ("22003", "", false, Class::Data),
            ("22P02", "", false, Class::Data),
            ("22021", "", false, Class::Data),
            ("54000", "", false, Class::Data),
            ("54001", "", false, Class::Data),
            // The whole batch is answered 503 for these.
            ("57014", "ProcessInterrupts", false, Class::Other), // statement timeout, cancel
            ("53100", "", false, Class::Other),                  // disk full
            ("53200", "", false, Class::Other),                  // out of memory
            ("53400", "", false, Class::Other),
            ("42501", "aclcheck_error", false, Class::Other), // permission lost, or a wall of RLS
            ("42P01", "", false, Class::Other),
            ("42704", "", false, Class::Other), // unset scope: unrecognized configuration parameter
            ("28P01", "", true, Class::Other),
            ("28000", "", true, Class::Other),
            ("3D000", "", true, Class::Other),
            ("58030", "", false, Class::Other),
            ("XX000", "", false, Class::Other),
            ("XX001", "", false, Class::Other),
            ("P0001", "", false, Class::Other),
            ("", "", false, Class::Other),
        ];
        for (sqlstate, routine, fatal, class) in table {
            assert_eq!(
                Class::of_parts(sqlstate, routine, *fatal),
                *class,
                "{sqlstate} raised by {routine:?}, fatal: {fatal}"
            );
        }
    }
}
