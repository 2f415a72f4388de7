//! What is served as it stands, and the page for people at `/`.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;

use crate::app::{App, text};
use crate::engine::Engine;

/// The OpenAPI document. A test holds it against the table of routes.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// Every code, explained: what `type` of a problem document points to. First those of the kinds, then
/// what holds for every request with the codes of HTTP itself.
pub(crate) const CODES: &str = concat!(
    include_str!("../../../docs/reference/codes.md"),
    "\n",
    include_str!("../../../docs/reference/events.md"),
    "\n",
    include_str!("../../../docs/reference/http.md")
);

impl<E: Engine> App<E> {
    pub(crate) async fn status_page(&self) -> Response<Full<Bytes>> {
        let ready = self.found_ready().await;
        let database = match &ready.database {
            Ok(version) => format!("PostgreSQL {}.{}", version / 10_000, version % 10_000),
            Err(why) => format!("out of reach: {why}"),
        };
        let schema = match (&ready.database, &ready.schema) {
            (Err(_), _) => "not known".to_owned(),
            (Ok(_), Ok(())) => "as this version needs it".to_owned(),
            (Ok(_), Err(why)) => why.clone(),
        };
        let durable = match (&ready.durability, ready.shortfall()) {
            (None, _) => "not known".to_owned(),
            (Some(_), None) => "yes: nothing is acknowledged before it is on disk".to_owned(),
            (Some(_), Some(why)) => why.to_owned(),
        };
        let rows = [
            (
                "Ready",
                if ready.is_ready() {
                    "yes".to_owned()
                } else {
                    "no".to_owned()
                },
            ),
            ("Database", database),
            ("Schema", schema),
            ("Durable", durable),
            ("Up for", up_for(self.started.elapsed().as_secs())),
            ("Connections", self.metrics.connections().to_string()),
            ("Kinds of intent", self.engine.kinds().names().join(", ")),
        ];
        let mut lanes = String::new();
        self.engine.render_metrics(&mut lanes);
        let page = page(&rows, &gauges(&lanes));
        text("text/html; charset=utf-8", Bytes::from(page))
    }
}

/// The samples of gauges among metrics: what is so at this moment.
fn gauges(metrics: &str) -> String {
    let mut out = String::new();
    let mut gauge = false;
    for line in metrics.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            gauge = kind.ends_with(" gauge");
        } else if gauge && !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

fn page(rows: &[(&str, String)], gauges: &str) -> String {
    let mut table = String::new();
    for (name, value) in rows {
        table.push_str(&format!(
            "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>\n",
            escape(value)
        ));
    }
    let body = format!(
        "<h1>Counterfoil <small>{version}</small></h1>\n<table>\n{table}</table>\n\
         <h2>Lanes</h2>\n<pre>{gauges}</pre>\n\
         <p><a href=\"/metrics\">metrics</a> · <a href=\"/openapi.json\">OpenAPI</a> · \
         <a href=\"/codes\">codes</a> · <a href=\"/readyz\">readyz</a></p>\n",
        version = env!("CARGO_PKG_VERSION"),
        gauges = escape(gauges),
    );
    document("Counterfoil", &body)
}

/// A page for people around a body of HTML.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n</body>\n</html>\n"
    )
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem;color-scheme:light dark}\
main{max-width:48rem;margin:auto}small{font-weight:normal;opacity:.6}\
th{text-align:left;vertical-align:top;padding-right:1.5rem;white-space:nowrap}\
pre{overflow-x:auto}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn up_for(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", seconds % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_the_database_is_escaped() {
        let page = page(&[("Database", "<script>\"&".to_owned())], "a{lane=\"0\"} 1\n");
        assert!(page.contains("&lt;script&gt;&quot;&amp;"));
        assert!(!page.contains("<script>"));
        assert!(
            !page.contains("http://") && !page.contains("https://"),
            "no external assets"
        );
    }

    #[test]
    fn the_page_shows_gauges_only() {
        let metrics = "# HELP a A.\n# TYPE a gauge\na{lane=\"0\"} 1\n# HELP b B.\n# TYPE b counter\nb 2\n";
        assert_eq!(gauges(metrics), "a{lane=\"0\"} 1\n");
    }
}
