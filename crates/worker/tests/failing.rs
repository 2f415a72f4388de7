use counterfoil_worker::Driver;

use crate::step::{NEVER, Order, answer, told};

#[tokio::test]
async fn errors_and_panics_are_counted_and_never_end_the_loop() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    answer(&mut passes, Order::Fail).await;
    answer(&mut passes, Order::Panic).await;
    answer(&mut passes, Order::Idle).await;
    // A pass that begins only after the third has been counted.
    driver.signal().wake();
    answer(&mut passes, Order::Idle).await;
    let metrics = driver.metrics();
    driver.shutdown(NEVER).await.unwrap();
    let seen = metrics.snapshot();
    assert_eq!(
        (seen.runs, seen.failures, seen.panics, seen.failures_in_a_row),
        (4, 2, 1, 0)
    );
    assert!(seen.since_success.is_some() && seen.last_duration.is_some());
}

#[tokio::test]
async fn a_signal_does_not_shorten_the_pause_after_a_failure() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    answer(&mut passes, Order::Fail).await;
    let failed = std::time::Instant::now();
    driver.signal().wake();
    answer(&mut passes, Order::Idle).await;
    // The pause of 100 ms, less the jitter and what passed before `failed` was read.
    assert!(
        failed.elapsed() >= std::time::Duration::from_millis(80),
        "{:?}",
        failed.elapsed()
    );
    // The signal was kept: it begins a pass that the timer would not.
    answer(&mut passes, Order::Idle).await;
}
