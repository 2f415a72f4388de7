//! Every statement of this crate means the same on each supported server.

use counterfoil_pg::statements;

use crate::cluster::Cluster;
use crate::on_both;

on_both!(every_statement_prepares_with_the_types_it_declares);

async fn every_statement_prepares_with_the_types_it_declares(cluster: Cluster) {
    let db = cluster.database().await;
    for sql in statements::ALL {
        let inferred = db.admin.prepare(sql.text).await.unwrap_or_else(|error| {
            panic!("{}: {error:?}", sql.name);
        });
        assert_eq!(inferred.params(), sql.params, "{}", sql.name);
        assert!(
            !sql.text.trim_end().ends_with(';'),
            "{}: one statement, no semicolon",
            sql.name
        );
    }
}
