//! The pages of the registry in headless Chromium.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod common;
mod site;

use std::process::{Command, Stdio};
use std::time::Duration;

use dunlin_registry::server::Limits;
use serde_json::json;
use site::Site;
use tempfile::TempDir;

/// How long a browser may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A home whose NSS database trusts the root of a site.
struct Home(TempDir);

impl Home {
    fn new(site: &Site) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".pki/nssdb")).unwrap();
        std::fs::write(home.path().join("root.pem"), &site.roots).unwrap();
        for args in ["-N --empty-password", "-A -n root -t C,, -i root.pem"] {
            let mut certutil = Command::new("certutil");
            certutil.args(args.split(' ')).args(["-d", "sql:.pki/nssdb"]).current_dir(home.path());
            let output = certutil.output().expect("certutil: `tools/setup test` installs it");
            assert!(output.status.success(), "{output:?}");
        }
        Self(home)
    }

    /// The page as the browser shows it, and the messages on its console.
    async fn open(&self, url: &str) -> (String, Vec<String>) {
        let known = |name: &&str| {
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        };
        let browser = ["chromium", "google-chrome"].into_iter().find(known);
        let mut browser =
            tokio::process::Command::new(browser.expect("no browser: `tools/setup test` installs chromium"));
        browser
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--enable-logging=stderr",
            ])
            .args(["--no-proxy-server", "--host-resolver-rules=MAP * 127.0.0.1", "--dump-dom"])
            .arg(format!("--user-data-dir={}", self.0.path().join("browser").display()))
            .arg(url)
            .env("HOME", self.0.path())
            .env_remove("XDG_CONFIG_HOME")
            .kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, browser.output()).await.unwrap().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
        let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
        (String::from_utf8(output.stdout).unwrap(), console)
    }
}

/// The target of the link with this text.
fn link<'a>(dom: &'a str, text: &str) -> &'a str {
    let before = dom.split_once(&format!("\">{text}</a>")).unwrap_or_else(|| panic!("{text} in {dom}")).0;
    before.rsplit_once('"').unwrap().1
}

/// The cells of each row.
fn rows(dom: &str) -> Vec<Vec<&str>> {
    dom.split("<tr><td>")
        .skip(1)
        .map(|row| row.split_once("</tr>").unwrap().0.trim_end_matches("</td>").split("</td><td>").collect())
        .collect()
}

/// A document that runs a script or changes the page would change the title and the rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_follows_the_log_to_the_history_of_a_did_and_runs_nothing() {
    let site = Site::new(Limits::default()).await;
    let mut holder = site.place.holder(1);
    let hostile =
        "</pre><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">";
    let mut operations = vec![holder.next(), holder.publish("alsoKnownAs", json!([hostile]))];
    let did = holder.state().did().to_string();
    operations.extend((2..52).map(|number| site.place.holder(number).next()));
    site.place.submit(&site.registry, operations);

    let home = Home::new(&site);
    let (log, console) = home.open(&site.url()).await;
    assert!(console.is_empty(), "{console:?}");
    assert!(
        log.contains("<h1>Registry registry.example/1</h1>") && log.contains("54 entries, 51 DIDs"),
        "{log}"
    );
    assert_eq!(rows(&log).len(), 50);
    let (older, _) = home.open(&(site.url() + link(&log, "Older entries"))).await;
    assert_eq!(
        rows(&older).iter().map(|row| row[..3].to_vec()).collect::<Vec<_>>(),
        [["3", "create", "0"], ["2", "update", "1"], ["1", "map", ""], ["0", "create", "0"]]
    );
    let (page, console) = home.open(&(site.url() + link(&older, &did))).await;
    assert!(console.is_empty(), "{console:?}");
    assert!(
        page.contains(&format!("<title>{did}</title>")) && page.contains("Active after 1 changes"),
        "{page}"
    );
    // The browser writes the text of the document back as HTML.
    let text = "&lt;/pre&gt;&lt;script&gt;document.title = 'taken'&lt;/script&gt;&lt;img src=x onerror=\\\"document.title = 'taken'\\\"&gt;";
    assert!(page.contains(text) && !page.contains("<script") && !page.contains("<img"), "{page}");
    assert_eq!(
        rows(&page).iter().map(|row| row[..3].to_vec()).collect::<Vec<_>>(),
        [["0", "create", "0"], ["2", "update", "1"]]
    );
}
