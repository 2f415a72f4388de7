use std::time::Duration;

use counterfoil_worker::{Driver, Overrun, shutdown_all};

use crate::step::{NEVER, Order, answer, next, told};

#[tokio::test]
async fn shutdown_waits_for_the_pass_under_way() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    let pass = next(&mut passes).await;
    let metrics = driver.metrics();
    let shutdown = tokio::spawn(driver.shutdown(NEVER));
    tokio::task::yield_now().await;
    assert!(!shutdown.is_finished());
    assert!(pass.answer.send(Order::More).is_ok());
    shutdown.await.unwrap().unwrap();
    assert_eq!(metrics.snapshot().runs, 1);
    assert!(passes.recv().await.is_none(), "no further pass, and the step is gone");
}

#[tokio::test]
async fn a_pass_that_does_not_end_is_cut_off() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    let mut pass = next(&mut passes).await;
    let bound = Duration::from_millis(1);
    assert_eq!(driver.shutdown(bound).await, Err(Overrun { name: "told", bound }));
    pass.answer.closed().await;
}

#[tokio::test]
async fn shutdown_ends_a_rest_and_a_pause() {
    let (resting, mut resting_passes) = told(NEVER);
    let (failing, mut failing_passes) = told(NEVER);
    let drivers = vec![Driver::start(resting), Driver::start(failing)];
    answer(&mut resting_passes, Order::Idle).await;
    answer(&mut failing_passes, Order::Fail).await;
    assert_eq!(shutdown_all(drivers, Duration::from_secs(10)).await, []);
}

#[tokio::test]
async fn dropping_the_driver_ends_the_step() {
    let (step, mut passes) = told(NEVER);
    let driver = Driver::start(step);
    let mut pass = next(&mut passes).await;
    drop(driver);
    pass.answer.closed().await;
    assert!(passes.recv().await.is_none());
}
