//! Every code this crate answers with, in the order they are checked. Those of wrong bodies and
//! keys are in `counterfoil-intent`, those of the kinds with the kinds.

macro_rules! codes {
    ($($name:ident = $code:literal;)+) => {
        $(pub const $name: &str = $code;)+
        /// All of them: a test holds them against the page of codes.
        pub const ALL: &[&str] = &[$($code),+];
    };
}

codes! {
    // Before the body is read.
    ROUTE_UNKNOWN = "route_unknown";
    METHOD_NOT_ALLOWED = "method_not_allowed";
    HOST_INVALID = "host_invalid";
    UNAUTHORIZED = "unauthorized";
    OPERATORS_ONLY = "operators_only";
    NOT_FOUND = "not_found";
    QUERY_UNKNOWN = "query_unknown";
    QUERY_REPEATED = "query_repeated";
    HEADER_REPEATED = "header_repeated";
    HEADER_INVALID = "header_invalid";
    MEDIA_TYPE = "media_type";
    TIMEOUT_INVALID = "timeout_invalid";
    // The body as a whole, and how it splits into intents.
    REQUEST_TOO_LARGE = "request_too_large";
    BODY_TIMEOUT = "body_timeout";
    BODY_INCOMPLETE = "body_incomplete";
    TOO_MANY_BYTES = "too_many_bytes";
    OVERLOADED = "overloaded";
    BODY_ENCODING = "body_encoding";
    JSON_INVALID = "json_invalid";
    TOO_MANY_ITEMS = "too_many_items";
    KEY_FOR_MANY = "key_for_many";
    KEY_FOR_EVENTS = "key_for_events";
    // Parameters.
    URL_ENCODING = "url_encoding";
    TEXT_NUL = "text_nul";
    PATH_CONFLICT = "path_conflict";
    QUERY_LIMIT = "query_limit";
    QUERY_CURSOR = "query_cursor";
    QUERY_TIME = "query_time";
    QUERY_CONFLICT = "query_conflict";
    QUERY_ORDER = "query_order";
    QUERY_MISSING = "query_missing";
    QUERY_GRAIN = "query_grain";
    QUERY_WEEK_START = "query_week_start";
    QUERY_ZONE = "query_zone";
    QUERY_FORMAT = "query_format";
    QUERY_SPAN = "query_span";
    TOO_MANY_READS = "too_many_reads";
    // Tenants.
    TENANT_INVALID = "tenant_invalid";
    // What becomes of an intent beside its outcome.
    TOO_MANY = "too_many";
    SHUTTING_DOWN = "shutting_down";
    DEADLINE_PASSED = "deadline_passed";
    KEY_REUSED = "key_reused";
    KEY_AHEAD = "key_ahead";
    KEY_TOO_OLD = "key_too_old";
    BUSY = "busy";
    UNAVAILABLE = "unavailable";
    INTERNAL = "internal";
    OUTCOME_UNKNOWN = "outcome_unknown";
}
