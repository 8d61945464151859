//! The broker's end of a connection of MQTT 5.
//!
//! It supports QoS 0 and 1, and last values (RETAIN). CONNACK denies what it does not support:
//! QoS 2, wildcards, shared subscriptions, subscription identifiers, and sessions that outlast
//! their connection.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::BytesMut;
use h3_server::quota::Client;
use mqtt5_protocol::packet::connack::ConnAckPacket;
use mqtt5_protocol::packet::connect::ConnectPacket;
use mqtt5_protocol::packet::disconnect::DisconnectPacket;
use mqtt5_protocol::packet::pingresp::PingRespPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::suback::{SubAckPacket, SubAckReasonCode};
use mqtt5_protocol::packet::subscribe::{SubscribePacket, TopicFilter};
use mqtt5_protocol::packet::subscribe_options::RetainHandling;
use mqtt5_protocol::packet::unsuback::{UnsubAckPacket, UnsubAckReasonCode};
use mqtt5_protocol::packet::unsubscribe::UnsubscribePacket;
use mqtt5_protocol::{MqttError, Packet, QoS, ReasonCode};

use super::{ADDED, FIRST, FROM, INSTANCE, MISSED, Packets, SEQUENCE, TIME, number, write};
use crate::broker::topics::{Publisher, Subscriber};
use crate::broker::{Broker, Refusal, start};
use crate::name::{PublisherName, TopicName};
use crate::topic::publishers::Owner;
use crate::topic::{Item, Message, Start};

#[cfg(test)]
mod tests;

/// The most messages of a subscriber that wait for their acknowledgement.
const MOST_IN_FLIGHT: usize = 1000;

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client left.
    Left,
    /// The broker ended it, for this reason. The last packet contains the reason.
    Refused(String),
}

/// The settings in the client's CONNECT.
#[derive(Debug)]
struct Connected {
    name: PublisherName,
    /// To whom the name belongs: the password is its secret.
    owner: Owner,
    /// The longest time without a packet.
    patience: Option<Duration>,
    receive_maximum: usize,
    longest_packet: usize,
}

#[derive(Debug)]
struct Subscription {
    topic: TopicName,
    subscriber: Subscriber,
    qos: QoS,
    /// Messages that the broker no longer has. The next message reports the number.
    missed: u64,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    broker: &'a Broker,
    client: Client,
    packets: Packets,
    connected: Option<Connected>,
    publishers: HashMap<TopicName, Publisher>,
    subscriptions: Vec<Subscription>,
    /// Identifiers of the packets that wait for their acknowledgement. A client acknowledges in the
    /// order of arrival (MQTT 5, section 4.6).
    in_flight: VecDeque<u16>,
    latest_id: u16,
    /// The subscription that sends next.
    turn: usize,
}

impl<'a> Session<'a> {
    pub(crate) fn new(broker: &'a Broker, client: Client) -> Self {
        Self {
            broker,
            client,
            packets: Packets::new(broker.limits.max_message as usize + ADDED),
            connected: None,
            publishers: HashMap::new(),
            subscriptions: Vec::new(),
            in_flight: VecDeque::new(),
            latest_id: 0,
            turn: 0,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.is_some()
    }

    /// How long the client may be silent; `None` for no limit.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.connected.as_ref().and_then(|connected| connected.patience)
    }

    /// Whether the client's stream may end here.
    pub(crate) fn may_end(&self) -> bool {
        self.packets.may_end()
    }

    /// Its subscribers, to wait for their messages.
    pub(crate) fn subscribers(&mut self) -> impl Iterator<Item = &mut Subscriber> {
        self.subscriptions.iter_mut().map(|subscription| &mut subscription.subscriber)
    }

    /// Whether the client accepts another message now.
    pub(crate) fn may_deliver(&self) -> bool {
        let most = self.connected.as_ref().map_or(0, |connected| connected.receive_maximum);
        self.in_flight.len() < most
    }

    /// Receives bytes of the client, and appends answers to `out`.
    pub(crate) fn receive(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), End> {
        self.packets.push(bytes);
        loop {
            let packet = match self.packets.next() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.refuse(code(&error), error.to_string(), out)),
            };
            self.handle(packet, out)?;
        }
    }

    fn handle(&mut self, packet: Packet, out: &mut BytesMut) -> Result<(), End> {
        let Some(connected) = &self.connected else {
            return match packet {
                Packet::Connect(connect) => self.connect(&connect, out),
                _ => Err(End::Refused("the first packet is not CONNECT".to_owned())),
            };
        };
        match packet {
            Packet::Publish(publish) => {
                let name = (connected.name.clone(), connected.owner);
                self.publish(publish, name, out)
            }
            Packet::PubAck(acknowledged) => match self.in_flight.front() {
                Some(&id) if id == acknowledged.packet_id => {
                    self.in_flight.pop_front();
                    Ok(())
                }
                _ => {
                    let reason = "PUBACK of another packet than the first that waits".to_owned();
                    Err(self.refuse(ReasonCode::ProtocolError, reason, out))
                }
            },
            Packet::Subscribe(subscribe) => {
                self.subscribe(&subscribe, out);
                Ok(())
            }
            Packet::Unsubscribe(unsubscribe) => {
                self.unsubscribe(&unsubscribe, out);
                Ok(())
            }
            Packet::PingReq => {
                write(&PingRespPacket::default(), out);
                Ok(())
            }
            Packet::Disconnect(_) => Err(End::Left),
            other => {
                let reason = format!("{} is not for this broker", other.packet_type_name());
                Err(self.refuse(ReasonCode::ProtocolError, reason, out))
            }
        }
    }

    fn connect(&mut self, connect: &ConnectPacket, out: &mut BytesMut) -> Result<(), End> {
        let refused = |code, reason: &str, out: &mut BytesMut| {
            let packet = ConnAckPacket::new(false, code).with_reason_string(reason.to_owned());
            write(&packet, out);
            Err(End::Refused(reason.to_owned()))
        };
        if connect.protocol_version != 5 {
            let reason = "this broker speaks MQTT 5 only";
            return refused(ReasonCode::UnsupportedProtocolVersion, reason, out);
        }
        if connect.will.is_some() {
            let reason = "this broker publishes no wills";
            return refused(ReasonCode::ImplementationSpecificError, reason, out);
        }
        if connect.properties.get_authentication_method().is_some() {
            let reason = "this broker offers no authentication";
            return refused(ReasonCode::BadAuthenticationMethod, reason, out);
        }
        let given = (!connect.client_id.is_empty()).then(|| PublisherName::new(&connect.client_id));
        let name = match given {
            Some(Ok(name)) => name,
            Some(Err(error)) => {
                return refused(ReasonCode::ClientIdentifierNotValid, &error.to_string(), out);
            }
            None => match PublisherName::random() {
                Ok(name) => name,
                Err(error) => {
                    return refused(ReasonCode::UnspecifiedError, &error.to_string(), out);
                }
            },
        };
        let longest = u32::try_from(self.broker.limits.max_message as usize + ADDED);
        let mut accepted = ConnAckPacket::new(false, ReasonCode::Success)
            .with_maximum_qos(1)
            .with_maximum_packet_size(longest.unwrap_or(u32::MAX))
            .with_session_expiry_interval(0)
            .with_wildcard_subscription_available(false)
            .with_subscription_identifier_available(false)
            .with_shared_subscription_available(false)
            .with_user_property(INSTANCE.to_owned(), self.broker.topics.instance().to_string());
        if connect.client_id.is_empty() {
            accepted = accepted.with_assigned_client_id(name.as_str().to_owned());
        }
        write(&accepted, out);
        let properties = &connect.properties;
        let half = Duration::from_secs(connect.keep_alive.into()) / 2;
        self.connected = Some(Connected {
            name,
            owner: self.broker.topics.owner(self.client, connect.password.as_deref()),
            // MQTT 5, section 3.1.2.10.
            patience: (!half.is_zero()).then_some(3 * half),
            receive_maximum: properties
                .get_receive_maximum()
                .map_or(MOST_IN_FLIGHT, |most| usize::from(most).clamp(1, MOST_IN_FLIGHT)),
            longest_packet: properties
                .get_maximum_packet_size()
                .map_or(usize::MAX, |most| most as usize),
        });
        Ok(())
    }

    fn publish(
        &mut self,
        publish: PublishPacket,
        name: (PublisherName, Owner),
        out: &mut BytesMut,
    ) -> Result<(), End> {
        let wrong = if publish.qos == QoS::ExactlyOnce {
            Some((ReasonCode::QoSNotSupported, "this broker supports QoS 0 and 1"))
        } else if publish.topic_alias().is_some() {
            Some((ReasonCode::TopicAliasInvalid, "this broker knows no topic aliases"))
        } else if publish.payload.len() > self.broker.limits.max_message as usize {
            Some((ReasonCode::PacketTooLarge, "the message is too long for this broker"))
        } else if publish.packet_id == Some(0) {
            Some((ReasonCode::ProtocolError, "a packet identifier is 0"))
        } else {
            None
        };
        if let Some((code, reason)) = wrong {
            return Err(self.refuse(code, reason.to_owned(), out));
        }
        let own = number(&publish.properties, SEQUENCE);
        let time = number(&publish.properties, TIME).unwrap_or(0);
        // Without a number, the name means nothing.
        let name = own.map(|_| name);
        let done = self.publisher(&publish.topic_name, name).and_then(|publisher| {
            Ok(publisher.publish(own, time, publish.payload, publish.retain)?)
        });
        match (publish.packet_id, done) {
            (None, Ok(())) => {}
            (Some(id), Ok(())) => write(&PubAckPacket::new(id), out),
            (Some(id), Err(refusal)) => {
                let packet = PubAckPacket::new_with_reason(id, refusal.code());
                write(&packet.with_reason_string(refusal.to_string()), out);
            }
            // By QoS 0, only the end of the connection tells the client.
            (None, Err(refusal)) => {
                return Err(self.refuse(refusal.code(), refusal.to_string(), out));
            }
        }
        Ok(())
    }

    fn publisher(
        &mut self,
        topic: &str,
        name: Option<(PublisherName, Owner)>,
    ) -> Result<&Publisher, Refusal> {
        let topic = TopicName::new(topic)?;
        if !self.publishers.contains_key(&topic) {
            self.check_number(self.publishers.len(), "topics to publish to")?;
            let place = self.broker.publishers.take(self.client)?;
            let publisher = self.broker.topics.publisher(&topic, place)?;
            self.publishers.insert(topic.clone(), publisher);
        }
        let publisher = self.publishers.get_mut(&topic).ok_or(Refusal::Path)?;
        if let Some((name, owner)) = name {
            publisher.take_name(name, owner)?;
        }
        Ok(publisher)
    }

    fn check_number(&self, present: usize, what: &'static str) -> Result<(), Refusal> {
        let most = self.broker.limits.max_requests;
        match present < most as usize {
            true => Ok(()),
            false => Err(Refusal::Connection(most, what)),
        }
    }

    fn subscribe(&mut self, subscribe: &SubscribePacket, out: &mut BytesMut) {
        let mut packet = SubAckPacket::new(subscribe.packet_id);
        for filter in &subscribe.filters {
            let code = match self.add(subscribe, filter) {
                Ok((qos, first)) => {
                    packet = packet.with_user_property(FIRST.to_owned(), first.to_string());
                    SubAckReasonCode::from_qos(qos)
                }
                Err((code, reason)) => {
                    packet.properties.set_reason_string(reason);
                    code
                }
            };
            packet = packet.add_reason_code(code);
        }
        write(&packet, out);
    }

    /// Subscribes. Returns the granted QoS, and the number of the first message.
    fn add(
        &mut self,
        subscribe: &SubscribePacket,
        filter: &TopicFilter,
    ) -> Result<(QoS, u64), (SubAckReasonCode, String)> {
        let refused = |code, reason: &str| Err((code, reason.to_owned()));
        let TopicFilter { filter, options } = filter;
        if filter.starts_with("$share/") {
            let code = SubAckReasonCode::SharedSubscriptionsNotSupported;
            return refused(code, "this broker shares no subscriptions");
        }
        if filter.contains(['+', '#']) {
            let code = SubAckReasonCode::WildcardSubscriptionsNotSupported;
            return refused(code, "this broker knows no wildcards");
        }
        if subscribe.properties.get_subscription_identifier().is_some() {
            let code = SubAckReasonCode::SubscriptionIdentifiersNotSupported;
            return refused(code, "this broker knows no subscription identifiers");
        }
        if options.no_local {
            let code = SubAckReasonCode::ImplementationSpecificError;
            return refused(code, "this broker does not support No Local");
        }
        let topic = TopicName::new(filter)
            .map_err(|error| (SubAckReasonCode::TopicFilterInvalid, error.to_string()))?;
        let full = |reason: String| (SubAckReasonCode::QuotaExceeded, reason);
        let qos = match options.qos {
            QoS::AtMostOnce => QoS::AtMostOnce,
            QoS::AtLeastOnce | QoS::ExactlyOnce => QoS::AtLeastOnce,
        };
        let present = self.subscriptions.len();
        let known = self.subscriptions.iter_mut().find(|known| known.topic == topic);
        let from = number(&subscribe.properties, FROM);
        let start = match options.retain_handling {
            _ if from.is_some() => {
                start(&self.broker.topics, from, number(&subscribe.properties, INSTANCE))
            }
            RetainHandling::DoNotSend => Start::Next,
            RetainHandling::SendAtSubscribeIfNew if known.is_some() => Start::Next,
            RetainHandling::SendAtSubscribe | RetainHandling::SendAtSubscribeIfNew => Start::Last,
        };
        if let Some(known) = known {
            // The new subscription replaces the former, and loses no message (MQTT 5, section
            // 3.8.4).
            known.qos = qos;
            known.subscriber.again(start);
            return Ok((qos, known.subscriber.first()));
        }
        self.check_number(present, "subscriptions").map_err(|refusal| full(refusal.to_string()))?;
        let place =
            self.broker.subscribers.take(self.client).map_err(|error| full(error.to_string()))?;
        let subscriber = self
            .broker
            .topics
            .subscriber(&topic, start, place)
            .map_err(|error| full(error.to_string()))?;
        let first = subscriber.first();
        self.subscriptions.push(Subscription { topic, subscriber, qos, missed: 0 });
        Ok((qos, first))
    }

    fn unsubscribe(&mut self, unsubscribe: &UnsubscribePacket, out: &mut BytesMut) {
        let mut packet = UnsubAckPacket::new(unsubscribe.packet_id);
        for filter in &unsubscribe.filters {
            let known = self.subscriptions.iter().position(|known| known.topic.as_str() == filter);
            packet = packet.add_reason_code(match known {
                Some(index) => {
                    self.subscriptions.swap_remove(index);
                    UnsubAckReasonCode::Success
                }
                None => UnsubAckReasonCode::NoSubscriptionExisted,
            });
        }
        write(&packet, out);
    }

    /// Appends messages to `out`, until it has `enough` bytes or there are no more. Subscriptions
    /// take turns, also from call to call. So a busy topic does not starve another.
    pub(crate) fn deliver(&mut self, out: &mut BytesMut, enough: usize) {
        let mut silent = 0;
        while silent < self.subscriptions.len() && out.len() < enough && self.may_deliver() {
            let index = self.turn % self.subscriptions.len();
            let Some(subscription) = self.subscriptions.get_mut(index) else { return };
            self.turn = index + 1;
            silent = match subscription.subscriber.read() {
                None => silent + 1,
                Some(Item::Missed(count)) => {
                    subscription.missed += count;
                    0
                }
                Some(Item::Last(message)) => {
                    self.send(index, message, true, out);
                    0
                }
                Some(Item::Message(message)) => {
                    self.send(index, message, false, out);
                    0
                }
            };
        }
    }

    /// Appends a message of this subscription.
    fn send(&mut self, index: usize, message: Message, last: bool, out: &mut BytesMut) {
        let (Some(subscription), Some(connected)) =
            (self.subscriptions.get_mut(index), &self.connected)
        else {
            return;
        };
        let Message { sequence, time, payload } = message;
        let mut packet = PublishPacket::new(subscription.topic.as_str(), payload, subscription.qos)
            .with_retain(last)
            .with_user_property(SEQUENCE.to_owned(), sequence.to_string())
            .with_user_property(TIME.to_owned(), time.to_string());
        if subscription.missed > 0 {
            packet = packet.with_user_property(MISSED.to_owned(), subscription.missed.to_string());
        }
        // Far fewer identifiers are in flight than exist.
        let id = self.latest_id.checked_add(1).unwrap_or(1);
        packet = packet.with_packet_id(id);
        let begin = out.len();
        write(&packet, out);
        if out.len() - begin > connected.longest_packet {
            // The broker must not send a longer one (MQTT 5, section 3.1.2.11.4).
            out.truncate(begin);
            subscription.missed += 1;
            return;
        }
        subscription.missed = 0;
        if subscription.qos != QoS::AtMostOnce {
            self.latest_id = id;
            self.in_flight.push_back(id);
        }
    }

    /// Ends the session, and sends the client the reason.
    fn refuse(&self, code: ReasonCode, reason: String, out: &mut BytesMut) -> End {
        if self.connected.is_some() {
            write(&DisconnectPacket::new(code).with_reason_string(reason.clone()), out);
        } else {
            write(&ConnAckPacket::new(false, code).with_reason_string(reason.clone()), out);
        }
        End::Refused(reason)
    }
}

/// The reason code for an unreadable packet.
fn code(error: &MqttError) -> ReasonCode {
    match error {
        MqttError::PacketTooLarge { .. } => ReasonCode::PacketTooLarge,
        MqttError::ProtocolError(_) => ReasonCode::ProtocolError,
        _ => ReasonCode::MalformedPacket,
    }
}
