"""The two tools that the demo model can use, in the ways in which programs define them, and tools that it ignores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from loragate.demo.chat_format import Tool


@dataclass(frozen=True)
class ToolFamily:
    """The names, parameters and descriptions under which programs offer one tool.

    Training uses no `held_out` description.
    """

    names: tuple[str, ...]
    parameters: tuple[str, ...]
    descriptions: tuple[str, ...]
    held_out: tuple[str, ...]

    def training(self, rng: random.Random) -> Tool:
        """Return a definition; half of them have the first name and parameter."""
        return self._tool(self.descriptions, rng)

    def unseen(self, rng: random.Random) -> Tool:
        """Return a definition with a description that training does not contain."""
        return self._tool(self.held_out, rng)

    def _tool(self, descriptions: Sequence[str], rng: random.Random) -> Tool:
        parameter = _mostly_first(self.parameters, rng)
        return Tool(_mostly_first(self.names, rng), (parameter,), rng.choice(descriptions))


def _mostly_first(options: Sequence[str], rng: random.Random) -> str:
    return options[0] if rng.random() < 0.5 else rng.choice(options)


WEATHER = ToolFamily(
    names=("get_weather", "get_current_weather", "weather", "fetch_weather", "weather_forecast"),
    parameters=("city", "location", "place"),
    descriptions=(
        "",
        "Get the weather of a city.",
        "Get weather for a given city.",
        "Returns the current weather in a place.",
        "Look up the weather.",
        "Weather of a location, for example Paris.",
        "Fetch the weather for a given city",
        "Get the current temperature and sky for a location.",
        "Use this to answer questions about the weather.",
        "The forecast of today.",
        "Call the weather service.",
    ),
    held_out=(
        "Get the current weather in a given city.",
        "Tells what the sky does at some place.",
        "Weather lookup by city name",
        "Get weather for a given location, e.g. San Francisco, CA",
    ),
)

CALCULATOR = ToolFamily(
    names=("calculator", "calculate", "evaluate", "compute"),
    parameters=("expression", "formula", "input"),
    descriptions=(
        "",
        "Evaluate an arithmetic expression.",
        "Calculates the value of an expression.",
        "Do arithmetic.",
        "Compute a formula such as 2 + 3.",
        "Use this for sums, products and quotients.",
        "A calculator for numbers.",
        "Returns the result of a calculation.",
        "Useful for math.",
        "Evaluate a math expression",
    ),
    held_out=(
        "Evaluates a mathematical expression and returns its value.",
        "Work out a formula with numbers.",
        "Solve arithmetic problems, like 12 * 7",
        "Useful for when you need to answer questions about math.",
    ),
)

OTHERS = (
    Tool("send_email", ("to", "subject", "body"), "Send an email."),
    Tool("search_web", ("query",), "Search the web for pages."),
    Tool("get_time", ("timezone",), "Return the current time."),
    Tool("get_stock_price", ("symbol",), "Get the price of a stock."),
    Tool("translate", ("text", "language"), "Translate a text to another language."),
    Tool("set_alarm", ("time",), "Set an alarm."),
    Tool("play_music", ("song",), "Play a song."),
    Tool("book_flight", ("origin", "destination", "date"), "Book a flight between two cities."),
    Tool("read_file", ("path",), "Read a file and return its content."),
    Tool("create_event", ("title", "date"), "Add an event to the calendar."),
    Tool("get_news", ("topic",), "Get the news about a topic."),
    Tool("get_user", ("user_id",), "Return a user's record."),
    Tool("lookup_order", ("order_id",), "Find an order of a customer."),
    Tool("open_door", (), "Open the door."),
    Tool("find_restaurant", ("cuisine", "area"), "Find a place to eat."),
    Tool("create_ticket", ("title", "priority"), ""),
    Tool("run_query", ("sql",), "Run a query on the database."),
    Tool("list_files", ("directory",), ""),
)
UNSEEN_OTHERS = (
    Tool("delete_file", ("path",), "Remove a file from the disk."),
    Tool("get_balance", ("account",), "Return the balance of a bank account."),
    Tool("turn_on_light", ("room",), "Switch on the light in a room."),
    Tool("post_message", ("channel", "text"), "Post a message to a channel."),
    Tool("handoff_to_support", (), "Hand the conversation to the support agent."),
)
