//! Statements: one per file, with the types of their parameters said in Rust.

use tokio_postgres::types::Type;

/// One statement of a `.sql` file.
///
/// The parameter types are declared so that a statement can be sent unnamed and typed behind a
/// pooler in transaction mode, and so that a test can compare them with what the server infers.
#[derive(Debug)]
pub struct Sql {
    pub name: &'static str,
    pub text: &'static str,
    pub params: &'static [Type],
}

/// Declares the statements of a crate's `sql/` folder, and the list `ALL` of them.
///
/// ```ignore
/// counterfoil_pg::statements! {
///     BALANCE_LOCK = "balance_lock" (INT8_ARRAY, UUID_ARRAY);
/// }
/// ```
/// `BALANCE_LOCK` is then a `&'static Sql` made of `sql/balance_lock.sql`.
#[macro_export]
macro_rules! statements {
    ($($name:ident = $file:literal ($($ty:ident),* $(,)?);)+) => {
        $(
            pub static $name: &$crate::Sql = &$crate::Sql {
                name: $file,
                text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $file, ".sql")),
                params: &[$($crate::Type::$ty),*],
            };
        )+
        /// Every statement of this crate: a test prepares them on each supported server.
        pub static ALL: &[&$crate::Sql] = &[$($name),+];
    };
}
