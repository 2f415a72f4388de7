//! Benchmarks, as short as they can be: what they say is compared with what the database holds, and that is what
//! is tested here. The figures of a second beside other tests mean nothing.

use counterfoil_test::Server;
use serde_json::Value;

use crate::harness::Home;

#[tokio::test]
async fn both_sides_of_a_benchmark_land_what_their_callers_saw() {
    let home = Home::new();
    let bin = Server::Pg15.bin_dir().display().to_string();
    for name in ["transfers-hot-batch", "events-batch", "events-single"] {
        let args = ["bench", name, "--seconds", "1", "--format", "json", "--pg-bin", &bin];
        let report: Value = serde_json::from_str(&home.ok(&args).await).unwrap();
        assert_eq!(report["name"], name);
        for side in ["naive", "ours"] {
            assert!(report[side]["per_s"].as_f64().unwrap() > 0.0, "{report}");
            assert!(report[side]["landed"].as_u64().unwrap() > 0, "{report}");
        }
        assert_eq!(report["ours"]["turned_away"], 0, "{report}");
    }
}
