//! Every code an event is refused with, in the order in which they are checked.

macro_rules! codes {
    ($($name:ident = $code:literal;)+) => {
        $(pub const $name: &str = $code;)+
        /// All of them: a test holds them against the page, and provokes each.
        pub const ALL: &[&str] = &[$($code),+];
    };
}

codes! {
    EVENT_TOO_LARGE = "event_too_large";
    STREAM_INVALID = "stream_invalid";
    SUBJECT_INVALID = "subject_invalid";
    ACTOR_INVALID = "actor_invalid";
    EVENT_ID_INVALID = "event_id_invalid";
    EVENT_TIME_MISSING = "event_time_missing";
    EVENT_TIME_INVALID = "event_time_invalid";
    EVENT_TIMES_DIFFER = "event_times_differ";
    EVENT_TOO_OLD = "event_too_old";
    EVENT_AHEAD = "event_ahead";
    PROPERTIES_INVALID = "properties_invalid";
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_lists_every_code_in_the_order_checked() {
        let page = include_str!("../../../docs/reference/events.md");
        let listed: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        assert_eq!(listed, super::ALL);
    }
}
