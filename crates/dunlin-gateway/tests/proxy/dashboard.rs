//! The dashboard in a browser.

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin_store::MemoryClientCache;
use tokio::process::Command;

use crate::admin::get;
use crate::chromium::browser;
use crate::place::{Place, backend, listener, metric_becomes, route, within};

/// The page as Chromium shows it.
struct Shown {
    dom: String,
    /// The messages on the console, and the requests that the browser blocks.
    console: Vec<String>,
    /// The colour of the first pixel.
    ground: Vec<u8>,
}

/// Opens the page in a browser with its own profile, for two seconds of the browser's clock.
async fn open(place: &Place, address: SocketAddr, scheme: &str) -> Shown {
    let mut browser = Command::new(browser().await.0);
    browser
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", place.path(&format!("profile-{scheme}")).display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .args(["--window-size=1200,1600", "--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--screenshot={}", place.path("page.png").display()))
        .arg(format!("http://{address}/"))
        .env("HOME", place.path("home"))
        .kill_on_drop(true);
    let output = within(browser.output()).await.unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    let png = std::fs::read(place.path("page.png")).unwrap();
    let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
    decoder.set_transformations(png::Transformations::normalize_to_color8() | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    Shown { dom: dom.into_owned(), console, ground: pixels[..3].to_vec() }
}

/// The cells of each row in the table with this id.
fn rows<'a>(dom: &'a str, id: &str) -> Vec<Vec<&'a str>> {
    let table = dom.split_once(&format!("<table id=\"{id}\"")).unwrap().1.split_once("</table>").unwrap().0;
    let cell = |cell: &'a str| cell.split_once('>').unwrap().1.split_once('<').unwrap().0;
    table.split("<tr>").skip(2).map(|row| row.split("<td").skip(1).map(cell).collect()).collect()
}

/// The text of the element with this id.
fn text<'a>(dom: &'a str, id: &str) -> &'a str {
    let element = dom.split_once(&format!("id=\"{id}\"")).unwrap().1;
    element.split_once('>').unwrap().1.split_once('<').unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_clients_decisions_latency_and_saved_bytes() {
    let place = Place::new();
    place.write(
        "policy.toml",
        "[profile.strong]\nrank = 100\nclient = \"certificate\"\n[blacklist]\nfailed = 1\n",
    );
    let config = "[admin]\nlisten = \"127.0.0.1:0\"\n".to_owned()
        + &listener("policy = \"policy.toml\"").replace("\"test\"", "\"<b>test</b>\"")
        + "[listener.clients]\nca = \"root.pem\"\n[listener.cache]\nmode = \"compact\"\n"
        + &route(backend("one").await, "");
    let (gateway, port) = place.start(&config).await;
    let mut client = place.with_certificate(place.client("root.pem"), "");
    client.cache = Some(Arc::new(MemoryClientCache::default()));
    client.exchange(port, "localhost", "").await.unwrap();
    let _connected = (client.connect(port, "localhost").await, client.connect(port, "localhost").await);
    place.make_pki("other-");
    let stranger = place.with_certificate(place.client("root.pem"), "other-");
    stranger.exchange(port, "localhost", "").await.unwrap_err();
    metric_becomes(&gateway, "dunlin_gateway_handshakes_total{outcome=\"failed\"}", 1.0).await;
    metric_becomes(&gateway, "dunlin_gateway_established", 2.0).await;
    let address = gateway.admin_address().unwrap();
    // Chromium numbers the colour schemes: 0 is dark.
    for (scheme, ground) in [("0", [0x0d, 0x11, 0x17]), ("1", [0xff, 0xff, 0xff])] {
        let Shown { dom, console, ground: shown } = open(&place, address, scheme).await;
        assert!(console.is_empty(), "{console:?}");
        assert_eq!(shown, ground);
        assert_eq!(text(&dom, "state"), "live", "{dom}");
        assert_eq!(text(&dom, "connections"), "2 of 10,000");
        assert_eq!(text(&dom, "failed"), "1");
        assert_eq!(rows(&dom, "live"), [["strong", "x509", "cached", "2"]]);
        let decisions = rows(&dom, "rules");
        assert!(decisions.contains(&vec!["default", "strong", "finished", "serve", "3"]), "{decisions:?}");
        let [policy] = &rows(&dom, "policies")[..] else { panic!("{dom}") };
        assert!(policy[0].ends_with("policy.toml") && policy[2].starts_with("1 profiles"), "{policy:?}");
        assert_eq!(policy[3], "in force");
        assert_eq!(rows(&dom, "blocked")[0][..2], ["127.0.0.1", "failed handshakes"]);
        let latency = rows(&dom, "latency");
        let counts: Vec<_> = latency.iter().map(|row| (row[0], row[4])).collect();
        assert_eq!(counts, [("cached", "2"), ("full", "1")]);
        assert!(latency.iter().all(|row| row[1].ends_with(" ms")), "{latency:?}");
        let failures = rows(&dom, "failures");
        // Names from the configuration are text, not markup.
        let name = "&lt;b&gt;test&lt;/b&gt;";
        assert_eq!(failures, [["certificate verification failed", "bad chain signature", name, "1"]]);
        let savings = rows(&dom, "savings");
        assert_eq!(savings[0][..3], ["cached", "gateway", name]);
        assert_eq!(savings[0][3], text(&dom, "saved"));
        assert_eq!(rows(&dom, "listeners")[0][..2], [name, "tls"]);
        assert_eq!(rows(&dom, "limits"), [["none"]]);
        // Each table has a name and the heads of its columns, for screen readers.
        assert_eq!(dom.matches("<table").count(), dom.matches("aria-labelledby=\"h-").count());
        assert_eq!(
            dom.matches("<th").count(),
            dom.matches("<th scope=\"col\"").count() + dom.matches("<thead").count()
        );
    }
}

#[tokio::test]
async fn the_page_loads_nothing_else_and_runs_only_its_own_script() {
    let place = Place::new();
    let config = "[admin]\nlisten = \"127.0.0.1:0\"\n".to_owned() + &listener("") + &route(1, "");
    let (gateway, _) = place.start(&config).await;
    let answer = get(gateway.admin_address().unwrap(), "/").await;
    let (header, page) = answer.split_once("\r\n\r\n").unwrap();
    let policy = header.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "script-src 'sha256-"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    for loaded in ["http:", "https:", "url(", "@import", "src=", "style=", "onclick", "innerHTML"] {
        assert!(!page.contains(loaded), "{loaded}");
    }
}
