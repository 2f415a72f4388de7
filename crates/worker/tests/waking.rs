use std::time::Duration;

use counterfoil_worker::Driver;

use crate::step::{NEVER, Order, answer, next, told};

#[tokio::test]
async fn the_first_pass_begins_at_once_and_a_signal_begins_the_next() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    answer(&mut passes, Order::Idle).await;
    driver.signal().wake();
    answer(&mut passes, Order::Idle).await;
    driver.shutdown(NEVER).await.unwrap();
}

#[tokio::test]
async fn a_signal_during_a_pass_begins_another_and_many_begin_one() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    let first = next(&mut passes).await;
    for _ in 0..5 {
        driver.signal().wake();
    }
    assert!(first.answer.send(Order::Idle).is_ok());
    answer(&mut passes, Order::Idle).await;
    let metrics = driver.metrics();
    driver.shutdown(NEVER).await.unwrap();
    assert_eq!(metrics.snapshot().runs, 2);
}

#[tokio::test]
async fn the_timer_needs_no_signal() {
    let (step, mut passes) = told(Duration::from_millis(1));
    let driver = Driver::start(step);
    for _ in 0..3 {
        answer(&mut passes, Order::Idle).await;
    }
    assert!(driver.snapshot().runs >= 2);
}

#[tokio::test]
async fn more_runs_again_without_a_rest() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    for _ in 0..3 {
        answer(&mut passes, Order::More).await;
    }
    answer(&mut passes, Order::Idle).await;
    driver.shutdown(NEVER).await.unwrap();
}
