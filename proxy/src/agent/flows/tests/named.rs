//! Answers to markers, and the proxies that they name.

use sidekick_protocol::wire::Cookie;
use sidekick_protocol::wire::discovery::{Answer, MARKER_LEN, Marker};

use super::*;

/// A flow between a private and a public address.
fn from_home() -> Flow {
    let (source, destination) = (([192, 168, 1, 20], 4000), ([198, 51, 100, 7], 443));
    Flow { source: source.into(), destination: destination.into() }
}

impl Net {
    /// The destinations of the agent's messages while packets leave, if the flow's destination
    /// answers each marker and names this proxy.
    fn asked_if_named(mut self, flow: Flow, proxy: &str) -> Vec<SocketAddr> {
        let mut asked = Vec::new();
        for number in 0..2000_u64 {
            let frame = packet(flow, &encrypted(number));
            let datagram = parse(Link::Ip, &frame, frame.len()).unwrap();
            let (link, each) = (Link::Ip, None);
            let leaving = Passing { interface: 0, link, datagram, each, frame: &frame };
            self.agent.on_leaving(leaving, self.now);
            if self.agent.poll_timeout().is_some_and(|at| at <= self.now) {
                self.agent.on_timeout(self.now);
            }
            while let Some((to, buffer)) = self.agent.pop() {
                if let To::Proxy { proxy, .. } = to {
                    asked.push(proxy);
                    continue;
                }
                let marker = parse(Link::Ip, &buffer, buffer.len()).unwrap().payload;
                let Marker { handle, nonce, .. } = Marker::parse(marker).unwrap();
                let cookie = Cookie([number.to_be_bytes()[7] | 1; 20]);
                let proxy = proxy.parse().unwrap();
                let (mut answer, answered) = ([0; MARKER_LEN], flow);
                let len = Answer { handle, nonce, proxy, flow: answered, cookie }
                    .emit(&mut answer)
                    .unwrap();
                self.arriving(flow.reversed(), &answer[..len]);
            }
            self.now += 10 * MS;
        }
        asked
    }
}

#[test]
fn a_destination_cannot_make_the_agent_send_to_others() {
    for (flow, proxy, expected) in [
        (flow(4000), "127.0.0.1:161", false),
        (flow(4000), "169.254.169.254:80", false),
        (flow(4000), "192.168.1.1:1900", false),
        (flow(4000), "203.0.113.9:5252", true),
        (from_home(), "192.168.1.1:5252", true),
        (from_home(), "127.0.0.1:161", false),
    ] {
        let asked = Net::new(limits(), MS, 0).asked_if_named(flow, proxy);
        assert_eq!(!asked.is_empty(), expected, "{proxy}");
        assert!(asked.iter().all(|to| to.to_string() == proxy), "{asked:?}");
        // In 20 s. Each session has seven messages.
        assert!(asked.len() <= 28, "{proxy}: {} messages", asked.len());
    }
    for own in ["192.168.1.20:161", "203.0.113.9:161"] {
        let mut net = Net::new(limits(), MS, 0);
        net.agent
            .set_local(&HashSet::from([own.parse::<SocketAddr>().unwrap().ip()]), &HashSet::new());
        assert!(net.asked_if_named(from_home(), own).is_empty(), "{own} is the machine's own");
    }
    let chosen = PROXY.parse().ok();
    let limits = Limits { sender: SenderConfig { proxy: chosen, ..limits().sender }, ..limits() };
    let asked = Net::new(limits, MS, 0).asked_if_named(flow(4000), "203.0.113.9:5252");
    assert!(asked.is_empty(), "not the operator's proxy: {asked:?}");
}

/// A router forwards flows of other addresses. The proxy accepts these only from the path.
#[test]
fn a_configured_proxy_is_found_on_the_path_of_forwarded_flows() {
    for is_own in [false, true] {
        let sender = SenderConfig { proxy: PROXY.parse().ok(), ..SenderConfig::default() };
        let mut net = Net::new(Limits { sender, ..limits() }, MS, 0);
        let own = if is_own { flow(4000).source.ip() } else { IpAddr::from([192, 0, 2, 7]) };
        net.agent.set_local(&HashSet::from([own]), &HashSet::new());
        net.stream(flow(4000), 1000);
        assert_eq!(net.agent.counts().1, 1, "assisted");
        assert_eq!(net.agent.totals().markers == 0, is_own);
        net.loss_percent = 5;
        net.stream(flow(4000), 1000);
        assert!(net.agent.totals().resent > 20, "{:?}", net.agent.totals());
    }
}
