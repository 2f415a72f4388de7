//! Measures the naive way alone: `cargo run --release -p counterfoil-bench --example naive NAME [SECONDS [lean]]`.

use counterfoil_bench::{Options, naive_only};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "transfers-hot".to_owned());
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let mut options = Options::new(seconds, |_| std::process::Command::new("false"));
    options.lean = arguments.next().is_some_and(|word| word == "lean");
    let side = naive_only(&name, &options, |word| eprintln!("{word}")).await?;
    println!("{}", serde_json::to_string(&side)?);
    Ok(())
}
