//! Rules over all tables, asked of the catalogue.

use std::fmt::Write as _;

use counterfoil_pg::Client;
use counterfoil_test::{Server, database};

use super::with_generations;
use crate::running::root;

/// Each finds what breaks it, as one text a row. Partitions are tables, and are looked at as well.
const RULES: [(&str, &str); 9] = [
    (
        "row security is on and forced on every table with tenant_id",
        "SELECT c.relname::text FROM tables AS c
         WHERE c.tenant IS NOT NULL AND NOT (c.relrowsecurity AND c.relforcerowsecurity)",
    ),
    (
        "every primary key and unique index of a table with tenant_id starts with it",
        "SELECT i.indexrelid::regclass::text FROM tables AS c JOIN pg_index AS i ON i.indrelid = c.oid
         WHERE c.tenant IS NOT NULL AND i.indisunique AND i.indkey[0] <> c.tenant",
    ),
    (
        "every foreign key of a table with tenant_id starts with it, on both sides",
        "SELECT k.conname::text FROM tables AS c JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'f'
         LEFT JOIN tables AS p ON p.oid = k.confrelid
         WHERE c.tenant IS NOT NULL AND (k.conkey[1] <> c.tenant OR k.confkey[1] IS DISTINCT FROM p.tenant)",
    ),
    (
        "every foreign key has an index that starts with its columns",
        "SELECT k.conname::text FROM tables AS c JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'f'
         WHERE NOT EXISTS (
             SELECT FROM pg_index AS i
             WHERE i.indrelid = c.oid AND i.indpred IS NULL
               AND (string_to_array(i.indkey::text, ' ')::int2[])[1:cardinality(k.conkey)] = k.conkey)",
    ),
    (
        "a foreign key never sets columns to null",
        "SELECT k.conname::text FROM tables AS c JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'f'
         WHERE k.confdeltype IN ('n', 'd')",
    ),
    (
        "partitions are granted to nobody: they are reached through their parent and its policies",
        "SELECT c.relname || ' to ' || pg_get_userbyid(a.grantee)
         FROM tables AS c, aclexplode(c.relacl) AS a WHERE c.relispartition AND a.grantee <> c.relowner",
    ),
    (
        "tables belong to counterfoil_owner and are granted to our roles only",
        "SELECT c.relname || ' to ' || CASE a.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(a.grantee) END
         FROM tables AS c, aclexplode(c.relacl) AS a
         WHERE a.grantee <> ALL (SELECT oid FROM pg_roles WHERE rolname IN ('counterfoil_owner', 'counterfoil_app',
             'counterfoil_lane', 'counterfoil_ops', 'counterfoil_report'))
         UNION ALL
         SELECT c.relname || ' of ' || pg_get_userbyid(c.relowner) FROM tables AS c
         WHERE pg_get_userbyid(c.relowner) <> 'counterfoil_owner'",
    ),
    (
        "our roles pass over no policy, and are members of nothing",
        "SELECT r.rolname::text FROM pg_roles AS r
         WHERE r.rolname LIKE 'counterfoil\\_%'
           AND (r.rolsuper OR r.rolbypassrls OR EXISTS (SELECT FROM pg_auth_members AS m WHERE m.member = r.oid))",
    ),
    (
        "no triggers, rules or functions",
        "SELECT t.tgname::text FROM tables AS c JOIN pg_trigger AS t ON t.tgrelid = c.oid WHERE NOT t.tgisinternal
         UNION ALL
         SELECT w.rulename::text FROM tables AS c JOIN pg_rewrite AS w ON w.ev_class = c.oid
         UNION ALL
         SELECT p.proname::text FROM pg_proc AS p WHERE p.pronamespace = 'counterfoil'::regnamespace",
    ),
];

/// The tables of the schema; `tenant` is the number of the column tenant_id.
const TABLES: &str = "WITH tables AS (
    SELECT c.*, (SELECT a.attnum FROM pg_attribute AS a
                        WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped) AS tenant
    FROM pg_class AS c
    WHERE c.relnamespace = 'counterfoil'::regnamespace AND c.relkind IN ('r', 'p'))";

#[allow(clippy::disallowed_methods, reason = "the administrator looks at the catalogue")]
async fn breaches(admin: &Client) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for (rule, query) in RULES {
        let rows = admin
            .query(&format!("{TABLES} {query}"), &[])
            .await
            .unwrap_or_else(|error| panic!("{rule}: {error:?}"));
        found.extend(rows.iter().map(|row| (rule, row.get::<_, String>(0))));
    }
    found
}

#[tokio::test]
async fn every_table_keeps_the_rules() {
    for server in Server::DIRECT {
        let test = database(server).await;
        with_generations(&test).await;
        let admin = test.admin().await;
        assert_eq!(breaches(&admin).await, [], "on {server:?}");
        insta::assert_snapshot!("tables", tables(&admin).await);
    }
}

/// The limits that `init` gives the roles, in the words of the page.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the administrator looks at the catalogue")]
async fn the_page_of_the_database_names_every_setting_of_a_role() {
    let page = std::fs::read_to_string(root().join("docs/reference/database.md")).expect("the page");
    let test = database(Server::Pg18).await;
    let query = "SELECT r.rolname::text, split_part(s, '=', 1), split_part(s, '=', 2)
        FROM pg_roles AS r, unnest(r.rolconfig) AS s WHERE r.rolname LIKE 'counterfoil\\_%' ORDER BY 1, 2";
    for row in test.admin().await.query(query, &[]).await.expect("settings") {
        let [role, name, value]: [String; 3] = [row.get(0), row.get(1), row.get(2)];
        // "15s" is "15 s" there.
        let value = value.replace("min", " min").replace('s', " s");
        let of_role = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{role}` |")))
            .unwrap_or_else(|| panic!("{role} has no row"));
        let timeout = name.ends_with("_timeout") && value != "0";
        assert!(page.contains(&format!("`{name}")), "{name} of {role}");
        assert!(
            !timeout || of_role.contains(&format!("| {value} |")),
            "{role}: {name} = {value}"
        );
    }
}

/// What is never found proves nothing.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the administrator makes what is wrong")]
async fn every_rule_finds_what_breaks_it() {
    let test = database(Server::Pg15).await;
    with_generations(&test).await;
    let admin = test.admin().await;
    admin
        .batch_execute(
            "CREATE TABLE counterfoil.parent (tenant_id bigint, id bigint, PRIMARY KEY (tenant_id, id), UNIQUE (id));
             CREATE TABLE counterfoil.child (tenant_id bigint, id bigint PRIMARY KEY,
                 parent bigint REFERENCES counterfoil.parent (id) ON DELETE SET NULL);
             GRANT SELECT ON counterfoil.child TO PUBLIC;
             DO $$ BEGIN EXECUTE (SELECT format('GRANT SELECT ON %s TO counterfoil_app', inhrelid::regclass)
                 FROM pg_inherits WHERE inhparent = 'counterfoil.stub'::regclass LIMIT 1); END $$;
             CREATE FUNCTION counterfoil.twice(i int) RETURNS int LANGUAGE sql AS 'SELECT 2 * i';",
        )
        .await
        .expect("a schema that is wrong");
    let found = breaches(&admin).await;
    // Roles are shared by all databases of the server: that rule cannot be broken beside other tests.
    for (rule, _) in RULES.iter().filter(|(rule, _)| !rule.starts_with("our roles")) {
        assert!(found.iter().any(|(broken, _)| broken == rule), "{rule}: {found:?}");
    }
}

/// Policies and rights, for people to read when they change.
#[allow(clippy::disallowed_methods, reason = "the administrator looks at the catalogue")]
async fn tables(admin: &Client) -> String {
    let mut said = String::new();
    let query = "SELECT c.oid, c.relname::text FROM pg_class AS c
         WHERE c.relnamespace = 'counterfoil'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
         ORDER BY c.relname";
    let lines = "SELECT format('  policy %s: %s%s to %s', p.policyname, lower(p.cmd),
                    CASE p.permissive WHEN 'PERMISSIVE' THEN '' ELSE ', restrictive,' END,
                    array_to_string(ARRAY(SELECT replace(r::text, 'counterfoil_', '') FROM unnest(p.roles) AS r ORDER BY 1), ', '))
         FROM pg_policies AS p WHERE format('%I.%I', p.schemaname, p.tablename)::regclass = $1::oid
         UNION ALL
         SELECT format('  %s may %s', replace(g.grantee, 'counterfoil_', ''), string_agg(g.right_, ', ' ORDER BY g.right_))
         FROM (SELECT pg_get_userbyid(a.grantee)::text AS grantee, lower(a.privilege_type) AS right_
               FROM pg_class AS c, aclexplode(c.relacl) AS a WHERE c.oid = $1::oid AND a.grantee <> c.relowner
               UNION ALL
               SELECT pg_get_userbyid(a.grantee)::text,
                      format('%s (%s)', lower(a.privilege_type), string_agg(t.attname, ', ' ORDER BY t.attnum))
               FROM pg_attribute AS t, aclexplode(t.attacl) AS a WHERE t.attrelid = $1::oid
               GROUP BY a.grantee, a.privilege_type) AS g
         GROUP BY g.grantee
         ORDER BY 1";
    for table in admin.query(query, &[]).await.expect("the tables") {
        let (oid, name): (u32, String) = (table.get(0), table.get(1));
        writeln!(said, "{name}").expect("a string grows");
        for line in admin.query(lines, &[&oid]).await.expect("policies and rights") {
            writeln!(said, "{}", line.get::<_, String>(0)).expect("a string grows");
        }
    }
    said
}
