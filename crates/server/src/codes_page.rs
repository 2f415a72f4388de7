//! The pages of codes as one page of HTML: what `type` of a problem document points to.

use std::collections::HashSet;
use std::sync::OnceLock;

use bytes::Bytes;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use crate::pages::{CODES, document};

/// Made once: it is the same for everybody, as long as the program runs.
pub(crate) fn codes_page() -> Bytes {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    PAGE.get_or_init(|| Bytes::from(document("Codes of Counterfoil", &body(CODES))))
        .clone()
}

fn body(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut out, events(markdown).into_iter());
    out
}

/// The text with an anchor at each code, and without links to files that are not served.
fn events(markdown: &str) -> Vec<Event<'_>> {
    let mut events: Vec<Event<'_>> = Vec::new();
    // Where the heading of a code began, whose text is its anchor.
    let mut heading = None;
    let mut dropped = false;
    let mut seen = HashSet::new();
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading {
                level: HeadingLevel::H3,
                ..
            }) => heading = Some(events.len()),
            Event::Text(ref text) => {
                if let Some(at) = heading.take()
                    && let Some(Event::Start(Tag::Heading { id, .. })) = events.get_mut(at)
                    // A code of the ledger and of HTTP: the first part of the page has the anchor.
                    && seen.insert(text.clone())
                {
                    *id = Some(text.clone());
                }
            }
            Event::Start(Tag::Link { ref dest_url, .. }) => {
                match here(dest_url) {
                    Some(anchor) => {
                        let Event::Start(Tag::Link {
                            link_type, title, id, ..
                        }) = event
                        else {
                            unreachable!("it was one a line ago");
                        };
                        let dest_url = anchor;
                        events.push(Event::Start(Tag::Link {
                            link_type,
                            dest_url,
                            title,
                            id,
                        }));
                    }
                    None => dropped = true,
                }
                continue;
            }
            Event::End(TagEnd::Link) if std::mem::take(&mut dropped) => continue,
            _ => {}
        }
        events.push(event);
    }
    events
}

/// Where a link of the documents leads on this page; `None`: it does not lead here.
fn here<'a>(link: &str) -> Option<CowStr<'a>> {
    let (file, anchor) = link.split_once('#')?;
    matches!(file, "" | "codes.md" | "http.md" | "events.md").then(|| format!("#{anchor}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_anchor_and_links_lead_nowhere_else() {
        let html = body(
            "## Codes\n\n### floor_crossed\n\n409 · see [the page](http.md#limits) and [ledger](ledger.md), `<x>`\n\n| a |\n|---|\n| b |\n",
        );
        insta::assert_snapshot!(html, @r##"
        <h2>Codes</h2>
        <h3 id="floor_crossed">floor_crossed</h3>
        <p>409 · see <a href="#limits">the page</a> and ledger, <code>&lt;x&gt;</code></p>
        <table><thead><tr><th>a</th></tr></thead><tbody>
        <tr><td>b</td></tr>
        </tbody></table>
        "##);
    }
}
