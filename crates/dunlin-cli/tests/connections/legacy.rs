//! Tests `--legacy-lab` of `dunlin client` and `dunlin server`, which needs the feature of that name.

use crate::peers::{CLIENT, SERVER, Server, place};

#[test]
fn obsolete_suites_need_two_options_and_give_a_warning() {
    let place = place();
    let suite = "--tls1-2 --cipher ADH-AES128-GCM-SHA256";
    let options = format!("{suite} --groups ffdhe_private_use_1 --legacy-lab");
    let server = Server::new(&place, &format!("{SERVER} {options}"));
    assert!(server.warnings.contains("WARNING: LEGACY LAB"), "{}", server.warnings);
    let output = server.client(&place, &format!("{CLIENT} {options} --brief"), "hello\n");
    let told = String::from_utf8(output.stdout).unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let negotiated = "TLSv1.2, TLS_DH_anon_WITH_AES_128_GCM_SHA256, ffdhe_private_use_1";
    assert!(format!("{told}{log}").contains(negotiated), "{told}{log}");
    assert!(told.ends_with("hello\n"), "{told}");
    assert!(log.contains("WARNING: LEGACY LAB"), "{log}");

    let refused = place.dunlin_fails(&format!("client {CLIENT} {suite}"), 2);
    let says = "--cipher: TLS_DH_anon_WITH_AES_128_GCM_SHA256 is insecure and only for the laboratory";
    assert!(refused.contains(says) && refused.contains("--legacy-lab"), "{refused}");
}
