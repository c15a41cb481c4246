"""A root that an option names."""


def root_of_option(option: str, text: str) -> str:
    """The root as keys have it.

    Args:
        option: The option, for the message.
        text: What was given.

    Raises:
        ConfigError: It is no root, as it is empty, has another form, or is not written as it is stored.
    """
    from a2a_gcs.errors import ConfigError, InvalidId  # noqa: PLC0415
    from a2a_gcs.layout import parse_root  # noqa: PLC0415

    if not text:  # a script's variable that nobody has set is not the whole bucket
        raise ConfigError(f"{option}: '' is no root; / is the bucket's prefix itself")
    try:
        return parse_root(text)
    except InvalidId as error:
        raise ConfigError(f"{option}: {text!r} {error.reason}") from error
