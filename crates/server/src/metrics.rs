//! What the server counts, and `/metrics`.
//!
//! Written by hand: a counter is an atomic in an array that is indexed by route and status, and the
//! text format is a line per number. A registry with labels would put a map and a lock between.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::app::{App, text};
use crate::engine::Engine;
use crate::route::ROUTES;

/// The statuses there are. One that is not listed counts as 500: it is a mistake of ours.
const STATUSES: [u16; 17] = [
    200, 201, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 500, 503, 504,
];

/// Upper bounds of the time of a request, in microseconds.
const TIMES: [u64; 10] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000,
];

#[derive(Debug)]
struct Counters {
    statuses: [AtomicU64; STATUSES.len()],
    /// One more for what took longer.
    times: [AtomicU64; TIMES.len() + 1],
    micros: AtomicU64,
}

impl Counters {
    const fn new() -> Self {
        Self {
            statuses: [const { AtomicU64::new(0) }; STATUSES.len()],
            times: [const { AtomicU64::new(0) }; TIMES.len() + 1],
            micros: AtomicU64::new(0),
        }
    }
}

#[derive(Debug)]
pub(crate) struct HttpMetrics {
    /// By place in [`ROUTES`]; the last for requests that found none.
    routes: Vec<Counters>,
    connections: AtomicUsize,
}

impl HttpMetrics {
    pub(crate) fn new() -> Self {
        Self {
            routes: (0..=ROUTES.len()).map(|_| Counters::new()).collect(),
            connections: AtomicUsize::new(0),
        }
    }

    pub(crate) fn count(&self, route: Option<usize>, status: StatusCode, took: Duration) {
        let counters = &self.routes[route.unwrap_or(ROUTES.len())];
        let at = STATUSES.iter().position(|one| *one == status.as_u16());
        counters.statuses[at.unwrap_or(STATUSES.len() - 3)].fetch_add(1, Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = TIMES.iter().position(|bound| micros <= *bound).unwrap_or(TIMES.len());
        counters.times[at].fetch_add(1, Relaxed);
        counters.micros.fetch_add(micros, Relaxed);
    }

    /// Counts a connection until what it returns is dropped.
    pub(crate) fn connection(&self) -> Connection<'_> {
        self.connections.fetch_add(1, Relaxed);
        Connection(&self.connections)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    fn render(&self, out: &mut String) {
        head(out, "counterfoil_http_connections", "gauge", "Connections open.");
        let _ = writeln!(out, "counterfoil_http_connections {}", self.connections());
        head(out, "counterfoil_http_requests_total", "counter", "Requests answered.");
        for (counters, label) in self.routes.iter().zip(labels()) {
            for (status, count) in STATUSES.iter().zip(&counters.statuses) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let _ = writeln!(
                        out,
                        "counterfoil_http_requests_total{{{label},status=\"{status}\"}} {count}"
                    );
                }
            }
        }
        let name = "counterfoil_http_request_seconds";
        head(out, name, "histogram", "Time from the head of a request to its answer.");
        for (counters, label) in self.routes.iter().zip(labels()) {
            let counts = counters.times.each_ref().map(|count| count.load(Relaxed));
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            let mut total = 0;
            for (bound, count) in TIMES.iter().zip(counts) {
                total += count;
                let _ = writeln!(out, "{name}_bucket{{{label},le=\"{}\"}} {total}", seconds(*bound));
            }
            total += counts[TIMES.len()];
            let _ = writeln!(out, "{name}_bucket{{{label},le=\"+Inf\"}} {total}");
            let _ = writeln!(out, "{name}_sum{{{label}}} {}", seconds(counters.micros.load(Relaxed)));
            let _ = writeln!(out, "{name}_count{{{label}}} {total}");
        }
    }
}

fn labels() -> impl Iterator<Item = String> {
    let routes = ROUTES
        .iter()
        .map(|spec| format!("method=\"{}\",route=\"{}\"", spec.method, spec.path));
    routes.chain(std::iter::once("method=\"\",route=\"none\"".to_owned()))
}

#[allow(clippy::cast_precision_loss, reason = "a metric")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection<'a>(&'a AtomicUsize);

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl<E: Engine> App<E> {
    pub(crate) fn metrics_page(&self) -> Response<Full<Bytes>> {
        let mut out = String::with_capacity(16 << 10);
        head(&mut out, "counterfoil_build_info", "gauge", "The version that runs.");
        let _ = writeln!(
            out,
            "counterfoil_build_info{{version=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION")
        );
        self.metrics.render(&mut out);
        self.engine.render_metrics(&mut out);
        text("text/plain; version=0.0.4; charset=utf-8", Bytes::from(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_status_and_time() {
        let metrics = HttpMetrics::new();
        metrics.count(Some(0), StatusCode::CREATED, Duration::from_micros(700));
        metrics.count(Some(0), StatusCode::CREATED, Duration::from_secs(60));
        metrics.count(None, StatusCode::NOT_FOUND, Duration::ZERO);
        metrics.count(None, StatusCode::IM_A_TEAPOT, Duration::ZERO);
        let connection = metrics.connection();
        let mut out = String::new();
        metrics.render(&mut out);
        drop(connection);
        assert_eq!(metrics.connections(), 0);
        let route = "method=\"POST\",route=\"/v1/tenants/{tenant}/intents\"";
        for line in [
            "counterfoil_http_connections 1".to_owned(),
            format!("counterfoil_http_requests_total{{{route},status=\"201\"}} 2"),
            "counterfoil_http_requests_total{method=\"\",route=\"none\",status=\"404\"} 1".to_owned(),
            "counterfoil_http_requests_total{method=\"\",route=\"none\",status=\"500\"} 1".to_owned(),
            format!("counterfoil_http_request_seconds_bucket{{{route},le=\"0.0005\"}} 0"),
            format!("counterfoil_http_request_seconds_bucket{{{route},le=\"0.001\"}} 1"),
            format!("counterfoil_http_request_seconds_bucket{{{route},le=\"+Inf\"}} 2"),
            format!("counterfoil_http_request_seconds_sum{{{route}}} 60.0007"),
        ] {
            assert!(out.lines().any(|found| found == line), "{line} is not in\n{out}");
        }
    }
}
