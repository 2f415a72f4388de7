//! `Whole` and the server agree on every digit.

use counterfoil_pg::{Role, Scope, Sql, Type, Whole};

use crate::cluster::Cluster;
use crate::on_both;

on_both!(the_server_reads_what_we_write, we_read_what_the_server_writes);

fn samples() -> Vec<Whole> {
    let mut samples = vec![Whole::ZERO, Whole::MAX, Whole::MIN];
    // Around every power of ten, and every power of the base.
    for digits in 0..38 {
        let power = 10i128.pow(digits);
        for near in [power - 1, power, power + 1, 5 * power, 1_234 * (power / 1_000)] {
            samples.extend([near, -near].map(Whole).into_iter().filter(|w| Whole::new(w.0).is_ok()));
        }
    }
    samples
}

async fn the_server_reads_what_we_write(cluster: Cluster) {
    static TO_TEXT: &Sql = &Sql {
        name: "to_text",
        text: "SELECT n::numeric(38,0)::text FROM unnest($1::numeric[]) WITH ORDINALITY AS u(n, i)
                ORDER BY i",
        params: &[Type::NUMERIC_ARRAY],
    };
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&Scope::Installation).await.unwrap();
    let samples = samples();
    let rows = tx.query(TO_TEXT, &[&samples]).await.unwrap();
    for (whole, row) in samples.iter().zip(&rows) {
        assert_eq!(row.get::<_, String>(0), whole.to_string());
    }
    assert_eq!(rows.len(), samples.len());
}

async fn we_read_what_the_server_writes(cluster: Cluster) {
    static FROM_TEXT: &Sql = &Sql {
        name: "from_text",
        text: "SELECT t::numeric FROM unnest($1::text[]) WITH ORDINALITY AS u(t, i) ORDER BY i",
        params: &[Type::TEXT_ARRAY],
    };
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&Scope::Installation).await.unwrap();
    let samples = samples();
    let texts: Vec<String> = samples.iter().map(Whole::to_string).collect();
    let rows = tx.query(FROM_TEXT, &[&texts]).await.unwrap();
    for (whole, row) in samples.iter().zip(&rows) {
        assert_eq!(row.get::<_, Whole>(0), *whole);
    }
    let odd = ["NaN", "Infinity", "1.5", "1.00", "0.1", "1e38", "-1e38", "1e100"];
    let odd: Vec<String> = odd.map(str::to_owned).into();
    for (text, row) in odd.iter().zip(&tx.query(FROM_TEXT, &[&odd]).await.unwrap()) {
        assert!(row.try_get::<_, Whole>(0).is_err(), "{text}");
    }
}
