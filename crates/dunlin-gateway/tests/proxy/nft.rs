//! A gateway's blacklist in sets of nftables, in a network namespace of its own.

use crate::kernel::{is_inside, make_sets, nft};
use crate::place::{Place, backend, metric, metric_becomes, route, within};
use crate::policy::{LISTENER, POLICY_RELOADED, place};

const SETS: &str = "nft_table = \"dunlin\"\nnft_ipv4 = \"blocked4\"\nnft_ipv6 = \"blocked6\"\n";

/// Waits until the set has, or no longer has, the clients of this test.
async fn set_becomes(set: &str, has_client: bool) {
    within(async {
        while nft(&["list", "set", "inet", "dunlin", set]).contains("127.0.0.1") != has_client {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Replaces a part of the policy, and waits until it is in force.
async fn change(place: &Place, gateway: &dunlin_gateway::Gateway, from: &str, to: &str) {
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let reloads = metric(gateway, POLICY_RELOADED);
    place.write("policy.toml", &text.replace(from, to));
    metric_becomes(gateway, POLICY_RELOADED, reloads + 1.0).await;
}

#[tokio::test]
async fn the_kernel_blocks_a_client_until_the_policy_exempts_it() {
    if !is_inside("nft::the_kernel_blocks_a_client_until_the_policy_exempts_it") {
        return;
    }
    make_sets("blocked");
    make_sets("more");
    let place = place("");
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let text = text.replace("profile = \"low\"", "refuse = true");
    place.write("policy.toml", &(text + "[blacklist]\nforeign = 1\n" + SETS));
    let config = LISTENER.to_owned() + &route(backend("one").await, "");
    let (gateway, port) = place.start(&config).await;
    let foreign = place.with_certificate(place.client("root.pem"), "");
    foreign.exchange(port, "localhost", "").await.unwrap_err();
    set_becomes("blocked4", true).await;
    // Neither a reload of the gateway nor one of the policy frees it: it goes over to another set.
    gateway.reload(place.config(&config)).await.unwrap();
    change(&place, &gateway, "nft_ipv4 = \"blocked4\"", "nft_ipv4 = \"more4\"").await;
    set_becomes("more4", true).await;
    set_becomes("blocked4", false).await;
    let friend = place.client("root.pem");
    friend.exchange(port, "localhost", "").await.unwrap_err();
    change(&place, &gateway, "foreign = 1", "foreign = 1\nexempt = \"127.0.0.0/8\"").await;
    set_becomes("more4", false).await;
    assert_eq!(friend.exchange(port, "localhost", "").await.unwrap(), "one got ");
    foreign.exchange(port, "localhost", "").await.unwrap_err();
    assert_eq!(metric(&gateway, "dunlin_gateway_networks_blocked_total"), 1.0);
}
