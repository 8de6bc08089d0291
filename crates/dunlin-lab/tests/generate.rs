//! Tests `dunlin-lab completions` and `dunlin-lab man`.

use dunlin_tests::generated::{assert_completes, assert_has_pages};

#[test]
fn bash_completes_commands_and_options() {
    assert_completes("dunlin-lab", &["up", "run"]);
}

#[test]
fn writes_a_man_page_for_each_command() {
    let pages =
        assert_has_pages("dunlin-lab", &["up", "list", "run", "report", "link", "completions", "man"]);
    let page = pages.read("man1/dunlin-lab.1").replace("\\-", "-");
    let synopsis = page.split_once(".SH SYNOPSIS\n").map(|(_, rest)| rest.lines().next());
    assert_eq!(synopsis, Some(Some("\\fBdunlin-lab\\fR <COMMAND>")));
    // Commands that only the lab itself starts have none.
    for hidden in ["measured", "upload"] {
        assert!(!pages.path(&format!("man1/dunlin-lab-{hidden}.1")).exists(), "{hidden}");
    }
}
