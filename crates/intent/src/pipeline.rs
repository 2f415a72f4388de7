//! Statements in flight together.

use counterfoil_pg::Error;

/// "Current transaction is aborted": what every later statement of a failed transaction gets.
const ECHO: &str = "25P02";

/// The values, or the error that was the cause.
///
/// All statements of a pipeline are waited for (`join`, not `try_join`): when one fails, those sent
/// after it fail too, and the echo of a failure may be seen before the failure itself.
pub(crate) fn all<T>(results: impl IntoIterator<Item = Result<T, Error>>) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    let mut failure: Option<Error> = None;
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => failure = Some(cause(failure, error)),
        }
    }
    failure.map_or(Ok(values), Err)
}

/// The same for two statements of different kinds.
pub(crate) fn both<A, B>(a: Result<A, Error>, b: Result<B, Error>) -> Result<(A, B), Error> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(a), Err(b)) => Err(cause(Some(a), b)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

fn cause(before: Option<Error>, next: Error) -> Error {
    match before {
        Some(before) if before.sqlstate() != Some(ECHO) => before,
        _ => next,
    }
}
