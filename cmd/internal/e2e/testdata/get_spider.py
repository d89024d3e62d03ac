"""A spider that fetches the URLs it is given, whatever they answer."""
import base64

import scrapy


class Get(scrapy.Spider):
    name = "get"
    handle_httpstatus_all = True
    custom_settings = {"ROBOTSTXT_OBEY": False}

    def start_requests(self):
        for url in self.urls.split(","):
            yield scrapy.Request(url, meta={"handle_httpstatus_all": True})

    def parse(self, response):
        headers = {k.decode(): b", ".join(v).decode() for k, v in response.headers.items()}
        body = base64.b64encode(response.body).decode()
        yield {"url": response.url, "status": response.status, "headers": headers, "body": body}
