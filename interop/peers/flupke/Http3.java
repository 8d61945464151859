import java.io.IOException;
import java.io.PushbackInputStream;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import tech.kwik.core.QuicConnection;
import tech.kwik.core.QuicStream;
import tech.kwik.core.generic.VariableLengthInteger;
import tech.kwik.core.server.ApplicationProtocolConnection;
import tech.kwik.core.server.ApplicationProtocolConnectionFactory;
import tech.kwik.flupke.impl.VariableLengthIntegerUtil;
import tech.kwik.flupke.server.Http3ApplicationProtocolFactory;
import tech.kwik.flupke.server.HttpRequestHandler;
import tech.kwik.flupke.server.impl.Http3ServerConnectionImpl;

/**
 * flupke's HTTP/3, except that it skips frames of unknown types before a request's HEADERS
 * (RFC 9114, sections 4.1 and 9).
 *
 * <p>quiche begins its first request with two such frames. flupke 0.9.4 by itself then closes the
 * connection with H3_FRAME_UNEXPECTED (Http3ServerConnectionImpl.readRequestHeadersFrame). So it
 * answers no request of quiche's.
 */
final class Http3 implements ApplicationProtocolConnectionFactory {
    private final HttpRequestHandler handler;
    private final Http3ApplicationProtocolFactory flupke;
    private final ExecutorService executor = Executors.newCachedThreadPool();

    Http3(HttpRequestHandler handler) {
        this.handler = handler;
        flupke = new Http3ApplicationProtocolFactory(handler);
    }

    @Override
    public ApplicationProtocolConnection createConnection(String protocol, QuicConnection connection) {
        // flupke's default limit is below 10 MiB.
        long maxData = Long.MAX_VALUE;
        return new Http3ServerConnectionImpl(
                connection, handler, flupke.getMaxHeaderSize(), maxData, executor, Map.of()) {
            @Override
            protected void handleBidirectionalStream(QuicStream stream) {
                PushbackInputStream input = new PushbackInputStream(stream.getInputStream(), 8);
                try {
                    while (unknownFrameType(VariableLengthIntegerUtil.peekLong(input))) {
                        VariableLengthInteger.parseLong(input);
                        input.skipNBytes(VariableLengthInteger.parseLong(input));
                    }
                } catch (IOException e) {
                    // The client cancelled its request. flupke detects the same end.
                }
                super.handleBidirectionalStream((QuicStream) Proxy.newProxyInstance(
                        QuicStream.class.getClassLoader(),
                        new Class<?>[] {QuicStream.class},
                        (proxy, method, arguments) ->
                                method.getName().equals("getInputStream") ? input : method.invoke(stream, arguments)));
            }
        };
    }

    @Override
    public int maxConcurrentPeerInitiatedUnidirectionalStreams() {
        return flupke.maxConcurrentPeerInitiatedUnidirectionalStreams();
    }

    @Override
    public long maxTotalPeerInitiatedUnidirectionalStreams() {
        return flupke.maxTotalPeerInitiatedUnidirectionalStreams();
    }

    @Override
    public int maxConcurrentPeerInitiatedBidirectionalStreams() {
        return flupke.maxConcurrentPeerInitiatedBidirectionalStreams();
    }

    @Override
    public int minUnidirectionalStreamReceiverBufferSize() {
        return flupke.minUnidirectionalStreamReceiverBufferSize();
    }

    @Override
    public long maxUnidirectionalStreamReceiverBufferSize() {
        return flupke.maxUnidirectionalStreamReceiverBufferSize();
    }
}
