//! Holds whose time passes, in the database.

use counterfoil_ledger::{Expire, ExpireBody, HoldState, expire_key, read};
use counterfoil_pg::{Role, Scope};
use counterfoil_test::Server;
use serde_json::json;

use crate::database::{Ledger, came};

/// The time of a hold passes: instead of waiting, it is moved into the past.
async fn let_pass(ledger: &Ledger, hold: uuid::Uuid) {
    ledger
        .outside(&format!(
            "UPDATE counterfoil.ledger_hold SET expires_at = now() - interval '1 s' WHERE id = '{hold}';
             UPDATE counterfoil.ledger_balance SET next_expiry = now() - interval '1 s', changed_at = now() - interval '2 s'"
        ))
        .await;
}

/// One pass of the worker.
async fn tidy(ledger: &Ledger) -> Vec<String> {
    let tx = ledger.db.pool(Role::Ops).begin(&Scope::Installation).await.unwrap();
    let due = read::due_holds(&Scope::Installation, &tx, 100).await.unwrap();
    tx.rollback().await;
    let intent = |due: &read::DueHold| {
        let key = expire_key(due.hold, due.pass);
        ledger
            .kinds
            .internal::<Expire>(due.tenant, key, ExpireBody { hold: due.hold })
    };
    let intents: Vec<_> = due.iter().map(intent).collect();
    ledger
        .lanes
        .submit(intents)
        .await
        .iter()
        .map(|answer| came(answer).code().to_owned())
        .collect()
}

#[tokio::test]
async fn a_hold_holds_nothing_back_once_its_time_has_passed_though_no_worker_has_seen_it() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("bank", None), ("cash", Some("0"))]).await;
        ledger.pay("bank", "cash", "10").await.ok();
        let hold = |amount: &str| json!({"account": "cash", "amount": amount, "expires_in": 1000});
        let first = ledger.run("ledger.hold", hold("8")).await.id("hold");
        let second = ledger.run("ledger.hold", hold("1")).await.id("hold");
        assert_eq!(ledger.pay("cash", "bank", "3").await.code(), "floor_crossed");
        let_pass(&ledger, first).await;

        assert_eq!(
            ledger.figures("cash").await,
            ("10.00".into(), "1.00".into(), "9.00".into())
        );
        assert_eq!(ledger.pay("cash", "bank", "9.01").await.code(), "floor_crossed");
        ledger.pay("cash", "bank", "9").await.ok();
        ledger.assert_whole().await;
        let named = json!({"hold": first.to_string(), "to": "bank"});
        assert_eq!(ledger.run("ledger.capture", named).await.code(), "hold_expired");
        let tx = ledger.app().await;
        let view = read::hold(&ledger.scope(), &tx, first).await.unwrap().unwrap();
        let listed = read::holds(&ledger.scope(), &tx, "cash", None, 10).await.unwrap();
        tx.rollback().await;
        assert_eq!(
            (view.state, view.amount.to_string()),
            (HoldState::Expired, "8.00".to_owned())
        );
        assert_eq!(listed.iter().map(|hold| hold.id).collect::<Vec<_>>(), [second]);

        // The worker comes, twice.
        assert_eq!(tidy(&ledger).await, ["accepted"]);
        assert_eq!(tidy(&ledger).await, [""; 0]);
        assert_eq!(
            ledger.figures("cash").await,
            ("1.00".into(), "1.00".into(), "0.00".into())
        );
        assert_eq!(
            ledger
                .count("SELECT held::bigint FROM counterfoil.ledger_balance WHERE held > 0")
                .await,
            100
        );
        let bound = "SELECT count(*) FROM counterfoil.ledger_balance b, counterfoil.ledger_hold h
                      WHERE h.state = 'active' AND h.expires_at = b.next_expiry";
        assert_eq!(ledger.count(bound).await, 1);
        ledger.assert_whole().await;
    }
}

#[tokio::test]
async fn two_workers_that_see_the_same_hold_end_it_once() {
    let ledger = Ledger::new(Server::Pg15).await;
    ledger.usd(&[("cash", None)]).await;
    let hold = ledger
        .run(
            "ledger.hold",
            json!({"account": "cash", "amount": "8", "expires_in": 1000}),
        )
        .await;
    let_pass(&ledger, hold.id("hold")).await;
    let (one, two) = tokio::join!(tidy(&ledger), tidy(&ledger));
    let mut codes = [one, two].concat();
    codes.sort();
    assert!(
        codes == ["accepted", "hold_expired"] || codes == ["accepted"],
        "{codes:?}"
    );
    ledger.assert_whole().await;
}
